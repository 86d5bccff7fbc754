# Tables and figures.
SHOWN = [
    *(("table", name, (".csv", ".md")) for name in TABLES),
    *(("figure", name, (".csv", ".png", ".svg")) for name in FIGURES),
]

for kind, name, formats in SHOWN:

    rule:
        name:
            f"{kind}_{name}"
        input:
            rules.collect.output,
            reference=references(),
            gaps=published_gaps(),
            ended=ENDED,
        output:
            multiext(f"{RESULTS}/{kind}s/{name}", *formats),
        log:
            f"{RESULTS}/logs/{kind}_{name}.log",
        localrule: True
        params:
            kind=kind,
            name=name,
            experiment=EXPERIMENT.name,
            judgement=EXPERIMENT.judgement.model_dump_json(),
        shell:
            '"$EDGC_PYTHON" -m edgc {params.kind} {params.name:q} {params.experiment:q} > {log:q} 2>&1'
