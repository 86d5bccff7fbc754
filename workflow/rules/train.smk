# One job a run. Its only output is a flag: Snakemake deletes the outputs of a job that failed or that is to run
# again, and the records and checkpoints are what the next attempt goes on from (a finished run: nothing at all). What a run depends on is in its id, hence in the
# path. On one machine a run has all cores (Snakemake caps threads at --cores) to itself, so that no other job disturbs
# its timings. Exit code 3 means that the run diverged: a result, which the tables show.
rule train:
    input:
        corpus=f"{CORPUS_DIR}/manifest.json",
    output:
        touch(f"{RUN}/trained"),
    log:
        f"{RUN}/stdout.log",
    threads: os.cpu_count() if CLUSTER.nodes == 1 else CLUSTER.schedule.cpus_per_task
    resources:
        nodes=lambda wildcards: SPECS[wildcards.run].cluster.nodes,
        tasks=lambda wildcards: SPECS[wildcards.run].cluster.processes,
        cpus_per_task=schedule("cpus_per_task"),
        mem_mb=schedule("memory_mb_per_node"),
        runtime=schedule("time_minutes"),
        gres=gpus(all_of_node=True),
        slurm_partition=schedule("partition"),
        slurm_account=schedule("account"),
        slurm_extra=schedule("extra"),
    params:
        experiment=EXPERIMENT.name,
        corpus=subpath(input.corpus, parent=True),
        out=subpath(output[0], parent=True),
    shell:
        '"$EDGC_PYTHON" -m edgc train {wildcards.run:q} --experiment {params.experiment:q}'
        " --corpus {params.corpus:q} --out {params.out:q} || [ $? -eq 3 ]"
