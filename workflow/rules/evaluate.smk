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
        **asked_for(CLUSTER, nodes=1, processes=1),
    params:
        **EVALUATED,
        out=subpath(output[0], parent=True),
        corpus=subpath(input.corpus, parent=True),
    shell:
        '"$EDGC_PYTHON" -m edgc evaluate {params.out:q}'
        " --experiment {params.experiment:q} --corpus {params.corpus:q} > {log:q} 2>&1"
