report: "../report/workflow.rst"


# The report alone needs the modules that make tables and figures, which take seconds to import.
if any(word.startswith("--report") for word in sys.argv):
    from edgc.report.write import captions

    config["captions"] = captions(EXPERIMENT)


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
        '"$EDGC_PYTHON" -m snakemake --snakefile "$EDGC_SNAKEFILE" --nolock --report {output:q}.part.html'
        " --config {params.experiment:q} -- results > {log:q} 2>&1 && mv {output:q}.part.html {output:q}"
