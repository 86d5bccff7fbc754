report: "../report/workflow.rst"


# Snakemake's own report, as a job: one command ends in it, and a second one has nothing to do.
rule render_report:
    input:
        tables(),
        figures(),
    output:
        f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report.log",
    localrule: True
    params:
        experiment=f"experiment={EXPERIMENT.name}",
        about=canonical_json(config["about"]),
    shell:
        '"$EDGC_PYTHON" -m snakemake --snakefile "$EDGC_SNAKEFILE" --nolock --report {output:q}'
        " --config {params.experiment:q} -- results > {log:q} 2>&1"
