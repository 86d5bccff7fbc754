EVALUATED = dict(
    experiment=EXPERIMENT.name,
    tasks=tasks_on_data,  # data that comes is a changed parameter; data that goes is none
    limit=EXPERIMENT.task_limit,
)


rule evaluate:
    input:
        trained=ancient(f"{JOB}/trained"),
        corpus=f"{CORPUS_DIR}/manifest.json",
    output:
        update(f"{JOB}/zero_shot.json"),  # left there: it has what was evaluated on data that has gone since
    log:
        f"{JOB}/evaluate.log",
    wildcard_constraints:
        run=none_of([*LIVE["evaluate"], *RESTORED]),
    resources:
        **one_process(CLUSTER),
    params:
        **EVALUATED,
        out=subpath(output[0], parent=True),
        corpus=subpath(input.corpus, parent=True),
    shell:
        '"$EDGC_PYTHON" -m edgc evaluate {params.out:q}'
        " --experiment {params.experiment:q} --corpus {params.corpus:q} > {log:q} 2>&1"


if LIVE["evaluate"]:

    rule follow_evaluate:
        output:
            update(f"{JOB}/zero_shot.json"),
        wildcard_constraints:
            run=one_of(LIVE["evaluate"]),
        localrule: True
        resources:
            slurm_job=lambda wildcards: LIVE["evaluate"][wildcards.run],
        params:
            **EVALUATED,
            out=subpath(output[0], parent=True),
            corpus=CORPUS_DIR,
        shell:
            '"$EDGC_PYTHON" -m edgc follow {resources.slurm_job} {output:q}'
