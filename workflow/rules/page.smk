# The page that answers, in one file. It is made last, and what it prints ends the run: its headline and where it is.
rule page:
    input:
        tables(),
        figures(),
        report=rules.render_report.output,
    output:
        f"{RESULTS}/index.html",
    log:
        f"{RESULTS}/logs/page.log",
    localrule: True
    params:
        experiment=EXPERIMENT.name,
    shell:
        '"$EDGC_PYTHON" -m edgc site --experiment {params.experiment:q} 2> {log:q}'
