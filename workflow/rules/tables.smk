for table in TABLES:

    rule:
        name:
            f"table_{table}"
        input:
            rules.collect.output,
            reference=f"configs/reference/{PAPER}.yaml",
            gaps=published_gaps(),
            ended=ENDED,
        output:
            multiext(f"{RESULTS}/tables/{table}", ".csv", ".md"),
            report(
                f"{RESULTS}/tables/{table}.html",
                caption="../report/caption.rst",
                category="Tables",
                labels={"table": table.replace("_", " ")},
            ),
        log:
            f"{RESULTS}/logs/table_{table}.log",
        localrule: True
        params:
            table=table,
            experiment=EXPERIMENT.name,
            judgement=EXPERIMENT.judgement.model_dump_json(),
        shell:
            '"$EDGC_PYTHON" -m edgc table {params.table:q} {params.experiment:q} > {log:q} 2>&1'
