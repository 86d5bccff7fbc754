# All methods of an experiment of mode `time` take turns in one launch, so they are one job. What was stopped begins
# anew: what is compared has to be timed at one go.
if EXPERIMENT.timing:

    rule time:
        input:
            corpus=f"{CORPUS_DIR}/manifest.json",
        output:
            touch(expand(f"{RUN}/timed", run=SPECS)),
        log:
            f"{RESULTS}/session/launch.log",
        threads: os.cpu_count() if CLUSTER.nodes == 1 else CLUSTER.schedule.cpus_per_task
        resources:
            **whole_nodes(CLUSTER, runs=1),
        params:
            experiment=EXPERIMENT.name,
            timing=EXPERIMENT.timing.model_dump_json(),
            corpus=subpath(input.corpus, parent=True),
        shell:
            '"$EDGC_PYTHON" -m edgc time {params.experiment:q} --corpus {params.corpus:q}'
