# All methods of an experiment of mode `time` take turns in one launch, so they are one job. What was stopped begins
# anew: what is compared has to be timed at one go.
if EXPERIMENT.timing:

    # The cluster model says beforehand what will be measured, from other sessions that are run for that.
    if EXPERIMENT.predict_from:

        rule time_for_calibration:
            input:
                corpus=f"{CORPUS_DIR}/manifest.json",
            output:
                touch("results/{source}/timed"),
            log:
                "results/{source}/session/launch.log",
            wildcard_constraints:
                source=none_of(LIVE["calibration"]),
            threads: os.cpu_count() if CLUSTER.nodes == 1 else CLUSTER.schedule.cpus_per_task
            resources:
                **whole_nodes(CLUSTER, runs=1),
            params:
                timing=lambda wildcards: timing_of(wildcards.source),
                corpus=subpath(input.corpus, parent=True),
            shell:
                '"$EDGC_PYTHON" -m edgc time {wildcards.source:q} --corpus {params.corpus:q} --wait'

        if LIVE["calibration"]:

            # Submitted by an earlier start of Snakemake: waited for, and not submitted again.
            rule follow_calibration:
                output:
                    update("results/{source}/timed"),
                wildcard_constraints:
                    source=one_of(LIVE["calibration"]),
                localrule: True
                resources:
                    slurm_job=lambda wildcards: LIVE["calibration"][wildcards.source],
                params:  # of the rule in whose place it is, or it would be timed again
                    timing=lambda wildcards: timing_of(wildcards.source),
                shell:
                    '"$EDGC_PYTHON" -m edgc follow {resources.slurm_job} {output:q}'

        rule predict:
            input:
                expand("results/{source}/timed", source=EXPERIMENT.predict_from),
            output:
                f"{RESULTS}/prediction.json",
            log:
                f"{RESULTS}/logs/predict.log",
            localrule: True
            params:
                experiment=EXPERIMENT.name,
                timing=timing_of(EXPERIMENT.name),
            shell:
                '"$EDGC_PYTHON" -m edgc predict {params.experiment:q} > {log:q} 2>&1'

    TIMED = expand(f"{RUN}/timed", run=SPECS)
    if LIVE["time"]:

        # Submitted by an earlier start of Snakemake: waited for, and not submitted again.
        rule follow_time:
            output:
                update(TIMED),
            localrule: True
            resources:
                slurm_job=LIVE["time"],
            params:  # of the rule in whose place it is, or it would be timed again
                experiment=EXPERIMENT.name,
                timing=EXPERIMENT.timing.model_dump_json(),
            shell:
                '"$EDGC_PYTHON" -m edgc follow {resources.slurm_job} {output[0]:q}'

    elif not set(SPECS) <= set(RESTORED):

        rule:
            name:
                f"time_{EXPERIMENT.name}"
            input:
                corpus=f"{CORPUS_DIR}/manifest.json",
                prediction=rules.predict.output if EXPERIMENT.predict_from else [],
            output:
                touch(TIMED),
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
                '"$EDGC_PYTHON" -m edgc time {params.experiment:q} --corpus {params.corpus:q} --wait'
