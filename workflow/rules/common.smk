# Names and helpers that the rules share. The experiment is read and checked here, before any job exists.

import os
import sys

from snakemake.exceptions import WorkflowError

from edgc.analysis.frames import FRAMES
from edgc.analysis.reference import EDGC as PAPER
from edgc.analysis.selection import figures_of, tables_of
from edgc.config import Cluster, Corpus, Task, load, load_experiment
from edgc.data.corpus import corpus_id, input_files
from edgc.errors import UserError
from edgc.files import canonical_json

# Jobs run this very interpreter, whatever PATH says. It is in the environment and in no rule: another interpreter is
# no reason to train again, and the report shows no path of this machine.
os.environ.update(
    EDGC_PYTHON=sys.executable, EDGC_SNAKEFILE=str(workflow.main_snakefile)
)

config.setdefault("experiment", "smoke")
if unknown := set(config) - {"experiment"}:
    raise WorkflowError(
        f"--config {', '.join(sorted(unknown))}: the only setting is experiment=<file in configs/experiments>"
    )
try:
    EXPERIMENT = load_experiment(config["experiment"])
    SPECS = {spec.run_id: spec for spec in EXPERIMENT.runs()}
    CORPUS = load(Corpus, EXPERIMENT.corpus)
    CLUSTER = load(Cluster, EXPERIMENT.cluster)
    TASKS = [load(Task, name) for name in EXPERIMENT.tasks]
    TABLES, FIGURES = tables_of(EXPERIMENT), figures_of(EXPERIMENT)
except UserError as error:
    raise WorkflowError(str(error))

RESULTS = f"results/{EXPERIMENT.name}"
RUN = f"{RESULTS}/runs/{{run}}"
CORPUS_DIR = f"results/corpora/{corpus_id(CORPUS)}"  # shared by experiments

# What the report's texts may say of the experiment.
config["about"] = {
    "title": EXPERIMENT.title,
    "shows": EXPERIMENT.shows,
    "models": ", ".join(EXPERIMENT.models),
    "methods": ", ".join(dict.fromkeys(spec.method.title for spec in SPECS.values())),
    "seeds": len(EXPERIMENT.seeds),
    "hardware": f"{CLUSTER.processes} × {CLUSTER.device_model}, nodes: {CLUSTER.nodes} (cluster {CLUSTER.name})",
    "margin": EXPERIMENT.judgement.margin_nats,
    "baseline": EXPERIMENT.judgement.baseline,
    "iterations": EXPERIMENT.training.iterations,
    "corpus": EXPERIMENT.corpus,
}


wildcard_constraints:
    run="[^/]+",


def tables():
    return expand(
        f"{RESULTS}/tables/{{name}}.{{kind}}", name=TABLES, kind=["csv", "md", "html"]
    )


def figures():
    return expand(
        f"{RESULTS}/figures/{{name}}.{{kind}}", name=FIGURES, kind=["svg", "png", "csv"]
    )


def corpus_files(wildcards):
    """Local text and tokenizer of the corpus. Where something is missing, `edgc prepare` says so better."""
    try:
        return input_files(CORPUS) if CORPUS.source == "files" else []
    except UserError:
        return []


def schedule(setting):
    """A resource that a run's cluster sets; without a value it is left out."""

    def resource(wildcards):
        return getattr(SPECS[wildcards.run].cluster.schedule, setting) or None

    return resource


def gpus(all_of_node):
    """Generic resource of a job with one GPU, or with one for every process on a node; none on a CPU cluster."""

    def resource(wildcards):
        cluster = SPECS[wildcards.run].cluster
        count = cluster.processes_per_node if all_of_node else 1
        return f"gpu:{count}" if cluster.device == "cuda" else None

    return resource
