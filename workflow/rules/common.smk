# Names and helpers that the rules share. The experiment is read and checked here, before any job exists.

import hashlib
import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from edgc.report.archive import MARK
from edgc.report.frames import FRAMES
from edgc.report.reference_values import EDGC as PAPER
from edgc.report.selection import figures_of, tables_of
from edgc.suite.config import Cluster, Corpus, Task, load, load_experiment
from edgc.suite.training.data.corpus_files import corpus_id, input_files
from edgc.suite.training.evaluation.tasks import evaluated_on
from edgc.core.base.errors import UserError
from edgc.core.base.files import canonical_json, read_json
from edgc.core.base.terminal import replace_unprintable
from edgc.suite.cluster.slurm import check_site, forgets_jobs, live_jobs, runs_of
from edgc.suite.cluster.workplace import enter

# Jobs run this very interpreter, whatever PATH says. It is in the environment and in no rule: another interpreter is
# no reason to train again.
os.environ.update(EDGC_PYTHON=sys.executable)

# Paths may have characters that neither the terminal nor Snakemake's log can hold.
replace_unprintable(*(getattr(handler, "stream", None) for handler in logger.handlers))

# Before Snakemake's own lock: what a killed one has left does not stop this one.
if workflow.is_main_process and "--nolock" not in sys.argv and enter(Path.cwd()):
    print(
        "Another Snakemake works in this folder. If on the same files, wait for it or end it.",
        file=sys.stderr,
    )

config.setdefault("experiment", "smoke")
if unknown := set(config) - {"experiment"}:
    raise WorkflowError(
        f"--config {', '.join(sorted(unknown))}: the only setting is experiment=<name in configs/experiments>"
    )
try:
    EXPERIMENT = load_experiment(config["experiment"])
    SPECS = {spec.run_id: spec for spec in EXPERIMENT.runs()}
    EVERY_RUN = [spec.run_id for spec in EXPERIMENT.runs_at_most()]
    CORPUS = load(Corpus, EXPERIMENT.corpus)
    CLUSTER = load(Cluster, EXPERIMENT.cluster)
    TASKS = [load(Task, name) for name in EXPERIMENT.tasks]
    TABLES, FIGURES = tables_of(EXPERIMENT), figures_of(EXPERIMENT)
except UserError as error:
    raise WorkflowError(str(error))

# What every run has to have before anything is made of it; what is simulated has no runs.
RECORDS = {
    "train": ["trained", "zero_shot.json"],
    "time": ["timed"],
    "simulate": [],
}[EXPERIMENT.mode]

RESULTS = f"results/{EXPERIMENT.name}"
RUN = f"{RESULTS}/runs/{{run}}"
# As an output of jobs that may go to SLURM: jobs are known there by their wildcards, and two experiments may have the
# same run.
JOB = "results/{experiment}/runs/{run}"
# Finished runs that `edgc restore` brought back are there, as a text is: no rule makes them.
RESTORED = [run for run in EVERY_RUN if os.path.exists(f"{RESULTS}/runs/{run}/{MARK}")]
CORPUS_DIR = f"results/corpora/{corpus_id(CORPUS)}"  # shared by experiments

UNTIL = EXPERIMENT.until_decided  # None: seeds are given


wildcard_constraints:
    experiment=re.escape(EXPERIMENT.name),
    run="[^/]+",


def tables():
    return expand(
        f"{RESULTS}/tables/{{name}}.{{kind}}", name=TABLES, kind=["csv", "md"]
    )


def figures():
    return expand(
        f"{RESULTS}/figures/{{name}}.{{kind}}", name=FIGURES, kind=["svg", "png", "csv"]
    )


def answer():
    """The headline of the page, and where it is; where nothing made it, only where results are."""
    log = Path(f"{RESULTS}/logs/page.log")
    return (
        log.read_text(encoding="utf-8", errors="replace").splitlines()[-2:]
        if log.is_file()
        else [f"{RESULTS}/"]
    )


def references():
    """What others printed: papers, and numbers at scale."""
    return sorted(map(str, Path("configs/reference").rglob("*.yaml")))


def published_gaps():
    """What the experiment takes of others' losses, as far as they published it: see `edgc.report.study`."""
    judgement = EXPERIMENT.judgement
    paths = [
        f"results/published/{source}/tables/accuracy.csv"
        for source in judgement.gaps_from + judgement.rungs_from
    ] + [
        f"results/published/{source}/figures/loss_step.csv"
        for source in judgement.gaps_from
    ]
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def corpus_files(wildcards):
    """Local text and tokenizer of the corpus. Where something is missing, `edgc prepare` says so better."""
    try:
        return input_files(CORPUS) if CORPUS.source == "files" else []
    except UserError:
        return []


def tasks_on_data(wildcards):
    """What a run is evaluated on: the tasks, each with its local data as it was, or as it is if it is still awaited."""
    run = Path(JOB.format(experiment=wildcards.experiment, run=wildcards.run))
    data = evaluated_on(run, TASKS)
    plain = {task.name: task.model_dump(mode="json") for task in TASKS}
    return canonical_json(
        [
            task | ({"data": data[name]} if name in data else {})
            for name, task in plain.items()
        ]
    )


def runs_of_seeds(seeds):
    """Ids of the runs of the first `seeds` seeds. Snakemake comes back after each look that is not there yet."""
    runs = list(SPECS)
    for reached in range(UNTIL.first, seeds):
        added = read_json(Path(checkpoints.look.get(seeds=reached).output[0]))["runs"]
        if not added:
            break
        runs += added
    return runs


def added_runs():
    """Ids of the runs that looks have asked for; none where seeds are given."""
    return runs_of_seeds(UNTIL.most)[len(SPECS) :] if UNTIL else []


def whole_nodes(cluster, runs):
    """What a job that trains asks for, as the cluster's file says: one rule for any number of nodes."""
    return asked_for(cluster, cluster.nodes, cluster.processes_per_node, runs)


def asked_for(cluster, nodes, processes, runs=1):
    """The same of a job of so many processes on each of so many nodes.

    `mpi` has Snakemake start the rule's command once, on the first node; it starts the others itself.
    """
    return (
        batch_settings(cluster, runs)
        | {"nodes": nodes, "mem_mb": cluster.schedule.memory_mb_per_node}
        | ({"tasks_per_node": processes} if processes > 1 else {"tasks": nodes})
        | ({"mpi": "srun"} if nodes * processes > 1 else {})
        | gpus(cluster, max(1, processes // cluster.processes_per_gpu))
    )


def batch_settings(cluster, runs):
    """Time, cores, and the site's own settings; what is not set is left out."""
    schedule = cluster.schedule
    settings = {
        "runtime": schedule.time_minutes * runs,
        "cpus_per_task": schedule.cpus_per_task,
        "slurm_partition": schedule.partition,
        "slurm_account": schedule.account,
        "slurm_extra": schedule.extra,
    }
    return {name: value for name, value in settings.items() if value}


def gpus(cluster, count):
    """GPUs of each node of a job; none on a CPU cluster."""
    return (
        {"gres": f"gpu:{count}", "tasks_per_gpu": 0} if cluster.device == "cuda" else {}
    )


def one_of(names):
    """A wildcard's constraint: any of these, in a path."""
    return "|".join(map(re.escape, names))


def none_of(names):
    """A wildcard's constraint: any but these, in a path."""
    return f"(?!(?:{one_of(names)})/)[^/]+" if names else "[^/]+"


def batched(names, size):
    """Lists of `size` names, the last one of what is left."""
    names = list(names)
    return [names[i : i + size] for i in range(0, len(names), size)]


def timing_of(name):
    """What a session is known by: which runs it times, and how."""
    experiment = load_experiment(name)
    return canonical_json(
        [
            experiment.timing.model_dump(mode="json"),
            [spec.run_id for spec in experiment.runs()],
        ]
    )


# Runs that share a job, by a hash of their names: a job in the queue is known by it, whatever has been added since.
# Restored ones need none. Seeds that are added later have a job each: which there will be is not known yet.
RUNS_PER_JOB = CLUSTER.schedule.runs_per_job
TOGETHER = [run for run in SPECS if RUNS_PER_JOB > 1 and run not in RESTORED]
SHARED_JOBS = {
    hashlib.sha256(" ".join(runs).encode()).hexdigest()[:8]: runs
    for runs in batched(TOGETHER, RUNS_PER_JOB)
}


def live():
    """Jobs that an earlier start of Snakemake has left in SLURM's queue, by rule: ids by run; of `time`, its id.

    Of `calibration`, ids by experiment.
    """
    jobs = live_jobs(Path.cwd()) if ON_CLUSTER else {}
    name = EXPERIMENT.name
    runs = EVERY_RUN
    found = {rule: runs_of(jobs, rule, name, runs) for rule in ("train", "evaluate")}
    for key, together in SHARED_JOBS.items():
        if job := jobs.get(f"rule_train_{name}_{key}"):
            found["train"] |= dict.fromkeys(together, job)
    prefix = "rule_time_for_calibration_wildcards_"
    found["calibration"] = {
        source: jobs[prefix + source]
        for source in EXPERIMENT.predict_from
        if prefix + source in jobs
    }
    return found | {"time": jobs.get(f"rule_time_{name}")}


# The process that submits: jobs on nodes read these files, too, and so do dry runs and reports.
ON_CLUSTER = workflow.is_main_process and bool(workflow.resource_settings.nodes)
try:
    if ON_CLUSTER:
        check_site(CLUSTER)
        # only told: which command the executor takes is not known here
        if seconds := forgets_jobs():
            print(
                f"SLURM's MinJobAge is {seconds} s here: squeue forgets jobs too soon to be polled; unless your profile"
                " says so already, add --slurm-status-command sacct",
                file=sys.stderr,
            )
    LIVE = live()
except UserError as error:
    raise WorkflowError(str(error))
