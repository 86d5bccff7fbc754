# Seeds that are added until verdicts are decided. After each seed a look says whose verdict is open; these methods and
# their baseline then get the next seed. A look is a file, so what was decided stays decided when Snakemake starts again.


def runs_of_seeds(seeds):
    """Ids of the runs of the first `seeds` seeds. Snakemake comes back after each look that is not there yet."""
    runs = list(SPECS)
    for reached in range(UNTIL.first, seeds):
        added = read_json(Path(checkpoints.look.get(seeds=reached).output[0]))["runs"]
        if not added:
            break
        runs += added
    return runs


def all_runs():
    """Ids of all the experiment's runs; with seeds until decided, as many as they have come to be."""
    return runs_of_seeds(UNTIL.most) if UNTIL else list(SPECS)


# By what runs are asked for: where it changes, looks are taken anew, and frames gathered.
ASKED_BY = (
    dict(judgement=EXPERIMENT.judgement.model_dump_json(), most=UNTIL.most)
    if UNTIL
    else {}
)

if UNTIL:

    checkpoint look:
        input:
            lambda wildcards: expand(
                f"{RUN}/trained", run=runs_of_seeds(int(wildcards.seeds))
            ),
        output:
            f"{RESULTS}/looks/{{seeds}}.json",
        log:
            f"{RESULTS}/logs/look_{{seeds}}.log",
        wildcard_constraints:
            seeds=r"\d+",
        localrule: True
        params:
            **ASKED_BY,
            experiment=EXPERIMENT.name,
        shell:
            '"$EDGC_PYTHON" -m edgc look {params.experiment:q} {wildcards.seeds} > {log:q} 2>&1'
