# Tables and figures: each with the files beside it, and the one that the report shows.
SHOWN = [
    *(("table", name, (".csv", ".md"), ".html") for name in TABLES),
    *(("figure", name, (".png", ".csv"), ".svg") for name in FIGURES),
]

for kind, name, beside, reported in SHOWN:

    rule:
        name:
            f"{kind}_{name}"
        input:
            rules.collect.output,
            reference=references(),
            gaps=published_gaps(),
            ended=ENDED,
        output:
            multiext(f"{RESULTS}/{kind}s/{name}", *beside),
            report(
                f"{RESULTS}/{kind}s/{name}{reported}",
                caption="../report/caption.rst",
                category=f"{kind.capitalize()}s",
                labels={kind: name.replace("_", " ")},
            ),
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
