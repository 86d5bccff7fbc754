# The page that answers, in one file. It is made last, and the run ends with its headline.
rule page:
    input:
        tables(),
        figures(),
    output:
        f"{RESULTS}/index.html",
    log:
        f"{RESULTS}/logs/page.log",
    localrule: True
    params:
        experiment=EXPERIMENT.name,
    shell:
        '"$EDGC_PYTHON" -m edgc site --experiment {params.experiment:q} > {log:q} 2>&1'
