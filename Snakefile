# From text to tables: prepare a corpus, train every method, evaluate, collect, and report.
#
#   snakemake --cores 2                                        the smoke experiment
#   snakemake --cores all --config experiment=smoke-english    another one of configs/experiments
#   snakemake --profile slurm --config experiment=paper-h100   on a SLURM cluster
#   snakemake --cores 2 paper_figures                          tables and figures of docs/edgc.md, without training
#
# Results: results/<experiment>/{index.html,tables,figures}. What a run depends on is in its folder's name,
# so a changed setting makes new runs of what it changes and of nothing else.

from snakemake.utils import min_version

min_version("9.20")


include: "workflow/rules/common.smk"
include: "workflow/rules/container.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/seeds.smk"
include: "workflow/rules/time.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/follow.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/shown.smk"
include: "workflow/rules/page.smk"
include: "workflow/rules/live.smk"
include: "workflow/rules/paper.smk"


rule all:
    default_target: True
    input:
        f"{RESULTS}/index.html",
