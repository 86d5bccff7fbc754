# The tables and figures that the ledger of docs/edgc.md names, made again from archives. Nothing is trained.
rule paper_figures:
    input:
        f"configs/reference/{PAPER}.yaml",
        "results/archive",
        "results/published",
    output:
        "results/paper-figures/index.md",
    log:
        "results/paper-figures/make.log",
    localrule: True
    shell:
        '"$EDGC_PYTHON" -m edgc site paper-figures > {log:q} 2>&1'
