rule evaluate:
    input:
        trained=f"{RUN}/trained",
        corpus=f"{CORPUS_DIR}/manifest.json",
    output:
        f"{RUN}/zero_shot.json",
    log:
        f"{RUN}/evaluate.log",
    resources:
        nodes=1,
        tasks=1,
        cpus_per_task=schedule("cpus_per_task"),
        mem_mb=schedule("memory_mb_per_node"),
        runtime=schedule("time_minutes"),
        gres=gpus(all_of_node=False),
        slurm_partition=schedule("partition"),
        slurm_account=schedule("account"),
        slurm_extra=schedule("extra"),
    params:
        experiment=EXPERIMENT.name,
        corpus=subpath(input.corpus, parent=True),
        out=subpath(output[0], parent=True),
        tasks=canonical_json([task.model_dump(mode="json") for task in TASKS]),
        limit=EXPERIMENT.task_limit,
    shell:
        '"$EDGC_PYTHON" -m edgc evaluate {params.out:q}'
        " --experiment {params.experiment:q} --corpus {params.corpus:q} > {log:q} 2>&1"
