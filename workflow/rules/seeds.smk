# Seeds that are added until verdicts are decided. After each seed a look says whose verdict is open; these methods and
# their baseline then get the next seed. A look is a file, so what was decided stays decided when Snakemake starts again.
if UNTIL:

    JUDGED_BY = [EXPERIMENT.judgement.model_dump_json(), UNTIL.model_dump_json()]
    # Named after all that looks depend on: where that changes, it is not there, so that looks are taken anew.
    # Snakemake by itself takes frames that exist for finished while the next look is missing.
    KEY = hashlib.sha256(canonical_json([*EVERY_RUN, *JUDGED_BY]).encode())
    ENDED = f"{RESULTS}/looks/{KEY.hexdigest()[:8]}.ended"

    checkpoint look:
        input:
            lambda wildcards: expand(
                f"{RUN}/trained", run=runs_of_seeds(int(wildcards.seeds))
            ),
            # evaluated, too, so that what is there can be archived; new data to evaluate on changes no verdict
            ancient(
                lambda wildcards: expand(
                    f"{RUN}/zero_shot.json", run=runs_of_seeds(int(wildcards.seeds))
                )
            ),
        output:
            f"{RESULTS}/looks/{{seeds}}.json",
        log:
            f"{RESULTS}/logs/look_{{seeds}}.log",
        wildcard_constraints:
            seeds=r"\d+",
        localrule: True
        params:
            experiment=EXPERIMENT.name,
            runs=EVERY_RUN,
            judged_by=JUDGED_BY,
        shell:
            '"$EDGC_PYTHON" -m edgc look {params.experiment:q} {wildcards.seeds} > {log:q} 2>&1'

    rule end:
        input:
            lambda wildcards: expand(f"{RUN}/trained", run=added_runs()),
        output:
            touch(ENDED),
        localrule: True

else:
    ENDED = []
