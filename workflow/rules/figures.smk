for figure in FIGURES:

    rule:
        name:
            f"figure_{figure}"
        input:
            rules.collect.output,
            gaps=published_gaps(),
            ended=ENDED,
        output:
            multiext(f"{RESULTS}/figures/{figure}", ".png", ".csv"),
            report(
                f"{RESULTS}/figures/{figure}.svg",
                caption="../report/caption.rst",
                category="Figures",
                labels={"figure": figure.replace("_", " ")},
            ),
        log:
            f"{RESULTS}/logs/figure_{figure}.log",
        localrule: True
        params:
            figure=figure,
            experiment=EXPERIMENT.name,
            baseline=EXPERIMENT.judgement.baseline,
        shell:
            '"$EDGC_PYTHON" -m edgc figure {params.figure:q} {params.experiment:q} > {log:q} 2>&1'
