rule collect:
    input:
        expand(f"{RUN}/{{record}}", run=SPECS, record=RECORDS),
        lambda wildcards: expand(f"{RUN}/{{record}}", run=added_runs(), record=RECORDS),
        # what forecasts are made with
        sorted(map(str, Path("configs/calibrations").glob("*.yaml")))
        if EXPERIMENT.simulation
        else [],
    output:
        expand(f"{RESULTS}/frames/{{name}}.parquet", name=FRAMES),
    log:
        f"{RESULTS}/logs/collect.log",
    localrule: True
    params:
        experiment=EXPERIMENT.name,
        runs=list(SPECS),
        titles=[spec.method.title for spec in SPECS.values()],
        simulation=EXPERIMENT.simulation and EXPERIMENT.simulation.model_dump_json(),
    shell:
        '"$EDGC_PYTHON" -m edgc collect {params.experiment:q} > {log:q} 2>&1'
