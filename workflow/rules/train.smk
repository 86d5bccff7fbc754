# One job a run, or one for several short ones. Its only output is a flag: Snakemake deletes the outputs of a job that
# failed or that is to run again, and the records and checkpoints are what the next attempt goes on from (a finished
# run: nothing at all). What a run depends on is in its id, hence in the path. On one machine a run has all cores
# (Snakemake caps threads at --cores) to itself, so that no other job disturbs its timings. Exit code 3 means that the
# run diverged: a result, which the tables show. 4 and 130: it has been asked to stop, and so has what would follow it.
# What a killed Snakemake has left training is waited for.

TRAIN = (
    "failed=0; for run in {params.runs}; do"
    ' "$EDGC_PYTHON" -m edgc train "$run" --experiment {params.experiment:q}'
    ' --corpus {params.corpus:q} --out {params.folder:q}/"$run" --wait'
    " || case $? in 3) ;; 4 | 130) exit 1 ;; *) failed=1 ;; esac; done; exit $failed"
)
TRAINED = dict(experiment=EXPERIMENT.name, folder=f"{RESULTS}/runs")
# all cores, or those that the processes are told to take: runs beside each other then time nothing
TRAIN_THREADS = os.cpu_count() if CLUSTER.nodes == 1 else CLUSTER.schedule.cpus_per_task
if EXPERIMENT.loop == "stacked":
    TRAIN_THREADS = CLUSTER.threads_per_process

if RUNS_PER_JOB == 1 or UNTIL:

    rule train:
        input:
            corpus=f"{CORPUS_DIR}/manifest.json",
        output:
            touch(f"{JOB}/trained"),
        log:
            f"{JOB}/launch.log",
        wildcard_constraints:
            run=none_of([*LIVE["train"], *TOGETHER, *RESTORED]),
        threads: TRAIN_THREADS
        resources:
            **whole_nodes(CLUSTER, runs=1),
        params:
            **TRAINED,
            runs="{run}",
            corpus=subpath(input.corpus, parent=True),
        shell:
            TRAIN


if SHARED_JOBS:

    # Short runs share a job, one after another, so that they wait in the queue once.
    for key, runs in SHARED_JOBS.items():
        if not set(runs) & set(LIVE["train"]):

            rule:
                name:
                    f"train_{EXPERIMENT.name}_{key}"
                input:
                    corpus=f"{CORPUS_DIR}/manifest.json",
                output:
                    touch(expand(f"{RUN}/trained", run=runs)),
                log:
                    expand(f"{RUN}/launch.log", run=runs),
                threads: TRAIN_THREADS
                resources:
                    **whole_nodes(CLUSTER, runs=len(runs)),
                params:
                    **TRAINED,
                    runs=" ".join(runs),
                    corpus=subpath(input.corpus, parent=True),
                shell:
                    TRAIN
