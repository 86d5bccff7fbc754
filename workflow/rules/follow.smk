# Jobs that an earlier start of Snakemake has submitted: waited for, and not submitted again. Each rule has the parameters
# of the one in whose place it is, or Snakemake would take what it waits for as changed. It does not record parameters
# that are paths of an input or an output, so these are left out.
IN_ONE_JOB = {run: " ".join(runs) for runs in SHARED_JOBS.values() for run in runs}
FOLLOWED = {
    "train": (
        "trained",
        TRAINED
        | {"runs": lambda wildcards: IN_ONE_JOB.get(wildcards.run, wildcards.run)},
    ),
    "evaluate": (
        "zero_shot.json",
        EVALUATED | {"out": subpath(output[0], parent=True)},
    ),
}

for what, (record, of_rule) in FOLLOWED.items():
    if LIVE[what]:

        rule:
            name:
                f"follow_{what}"
            output:
                update(f"{JOB}/{record}"),
            wildcard_constraints:
                run=one_of(LIVE[what]),
            localrule: True
            resources:
                slurm_job=lambda wildcards, jobs=LIVE[what]: jobs[wildcards.run],
            params:
                **of_rule,
            shell:
                '"$EDGC_PYTHON" -m edgc follow {resources.slurm_job} {output:q}'
