"""The workflow: what it would run, what it runs, what it runs again, and what it says when it cannot."""

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from edgc.core.base.files import read_json
from edgc.report import selection
from edgc.report.archive import MARK, archive, restore
from edgc.report.selection import figures_of, names, tables_of
from edgc.suite.config import Experiment, available, load_experiment
from tests.fixtures.site_page import unfolded

TABLES, FIGURES = (names(room, selection.TRAIN) for room in (selection.TABLES, selection.FIGURES))
ROOT = Path(__file__).resolve().parents[2]
SMOKE = ["--config", "experiment=smoke"]


# what it would run


def one_of_every_kind() -> list[Any]:
    """Experiments that differ in what the workflow asks of them; that all of them load is tested elsewhere."""
    kinds: dict[tuple[object, ...], str] = {}
    for name in available(Experiment):
        e = load_experiment(name)
        asks = (type(e.seeds), *map(bool, (e.traces, e.learning_rates, e.predict_from, e.tasks)))
        kinds.setdefault((e.mode, e.loop, *asks), name)
    first = {mode: name for (mode, *_), name in reversed(kinds.items())}
    return [
        pytest.param(name, marks=() if first[str(kind[0])] == name else pytest.mark.tier("all"))
        for kind, name in kinds.items()
    ]


@pytest.mark.parametrize("name", one_of_every_kind())
def test_every_kind_of_experiment_plans_all_its_runs(project, name):
    experiment = load_experiment(name)
    jobs = project.would_run("--config", f"experiment={name}")
    if experiment.mode == "simulate":
        assert not {"train", f"time_{name}", "evaluate", "prepare"} & set(jobs), "nothing is run"
    else:
        measured = jobs["train" if experiment.mode == "train" else f"time_{name}"]
        planned = {output.split("/")[-2] for outputs in measured for output in outputs.split(", ")}
        assert planned == {spec.run_id for spec in experiment.runs()}
        assert len(jobs.get("evaluate", ())) == (len(planned) if experiment.mode == "train" else 0)
        assert len(jobs["prepare"]) == 1
    shown = {f"table_{table}" for table in tables_of(experiment)}
    shown |= {f"figure_{figure}" for figure in figures_of(experiment)}
    assert {job for job in jobs if job.startswith(("table_", "figure_"))} == shown
    assert jobs["page"] == [f"results/{name}/index.html"]


def test_shown_are_made_of_what_others_published(project):
    """Losses of other experiments, at the end and on their way, and numbers at scale."""
    others = [f"results/published/peers-every-step/{path}" for path in ("tables/accuracy.csv", "figures/loss_step.csv")]
    for path in others:
        (project.root / path).parent.mkdir(parents=True)
        (project.root / path).touch()
    done = project.snakemake("--dry-run", "--config", "experiment=links-every-step")
    for shown in ("table_links", "figure_loss_on_links"):
        inputs = re.search(rf"rule {shown}:\s+input: ([^\n]*)", done.stdout + done.stderr)
        assert inputs
        assert {*others} < {*inputs[1].split(", ")}
        assert "configs/reference/at-scale/" in inputs[1]


@pytest.mark.tier("all")
def test_the_papers_figures_are_one_job(project):
    for folder in ("archive", "published"):
        (project.root / "results" / folder).mkdir(parents=True, exist_ok=True)
    assert project.would_run(*SMOKE, "--", "paper_figures") == {"paper_figures": ["results/paper-figures/index.md"]}


def test_a_job_lists_what_its_cluster_asks_for(project):
    done = project.snakemake("--dry-run", "--config", "experiment=paper-h100")
    train = re.search(r"rule train:.*?resources: ([^\n]*)", done.stdout + done.stderr, re.DOTALL)
    assert train
    cluster = load_experiment("paper-h100").runs()[0].cluster
    for resource in (
        f"nodes={cluster.nodes}",
        f"tasks_per_node={cluster.processes_per_node}",
        f"cpus_per_task={cluster.schedule.cpus_per_task}",
        f"mem_mb={cluster.schedule.memory_mb_per_node}",
        f"runtime={cluster.schedule.time_minutes}",
        f"gres=gpu:{cluster.processes_per_node}",
    ):
        assert resource in train[1]
    assert "slurm_account" not in train[1], "what is not set is left to the site"


# what it runs, and runs again


def test_one_command_ends_in_tables_and_figures(finished):
    results = finished.root / "results/toy"
    assert {path.name for path in (results / "tables").iterdir()} == {
        f"{name}.{kind}" for name in TABLES for kind in ("csv", "md")
    }
    assert {path.name for path in (results / "figures").iterdir()} == {
        f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png", "csv")
    }
    status = pd.read_csv(results / "tables/accuracy.csv").set_index("method")["status"]
    assert status.to_dict() == {"dense": "done", "powersgd": "diverged", "edgc": "done"}, "diverging is a result"


def test_the_page_has_every_table_and_tells_no_path(finished):
    page = unfolded((finished.root / "results/toy/index.html").read_text())
    assert all(f'id="t-toy-{name}"' in page for name in TABLES)
    assert re.search(r'id="vega" data-packed="[^"]{100000}', page)
    assert str(finished.root) not in page


def test_runs_from_the_archive_are_not_trained_again(finished, project):
    """Not even though their text is prepared later, for a run that is missing."""
    there, here = finished.root / "configs", project.root / "configs"
    archive(load_experiment("toy", there), finished.root / "results", there)
    shutil.copytree(finished.root / "results/archive", project.root / "results/archive")
    toy = here / "experiments/toy.yaml"
    toy.write_text(toy.read_text().replace("[dense, powersgd, edgc]", "[dense, powersgd, edgc, topk]"))
    assert len(restore(load_experiment("toy", here), project.root / "results", here).came) == 3
    done = project.snakemake("results/toy/tables/accuracy.csv")
    assert done.returncode == 0, done.stdout + done.stderr
    weights = {path.parent.name for path in (project.root / "results/toy/runs").glob("*/checkpoint")}
    assert {name.split("-")[2] for name in weights} == {"topk"}
    assert len(pd.read_csv(project.root / "results/toy/tables/accuracy.csv")) == 4


def test_a_timing_from_the_archive_is_not_timed_again(project):
    """As above, and its text is prepared for nothing."""
    runs = project.root / "results/links-pipeline/runs"
    for spec in load_experiment("links-pipeline").runs():
        (runs / spec.run_id).mkdir(parents=True)
        for name in ("timed", MARK):
            (runs / spec.run_id / name).touch()
    jobs = project.would_run("--config", "experiment=links-pipeline")
    assert not {"time_links-pipeline", "prepare"} & set(jobs)
    assert "table_links" in jobs
    shutil.rmtree(runs / spec.run_id)
    assert "time_links-pipeline" in project.would_run("--config", "experiment=links-pipeline")


def test_a_second_call_runs_nothing(finished):
    done = finished.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr


def test_what_changes_no_result_runs_nothing(finished):
    edits = [
        ("configs/methods/powersgd.yaml", "name: powersgd", "# a comment\nname: powersgd"),
        ("configs/experiments/toy.yaml", "name: toy", "# a comment\nname: toy"),
    ]
    with finished.edited(*edits):
        assert finished.would_run() == {}
    with finished.edited(*edits, ("workflow/rules/train.smk", '"$EDGC_PYTHON" -m', 'nice "$EDGC_PYTHON" -m')):
        assert finished.would_run("--workflow-profile", "workflow/profiles/local") == {}


@pytest.mark.parametrize(
    ("path", "old", "new", "methods"),
    [
        ("configs/methods/powersgd.yaml", "rank: 32", "rank: 31", {"powersgd"}),
        ("configs/experiments/toy.yaml", "iterations: 40", "iterations: 50", {"dense", "powersgd", "edgc"}),
    ],
)
def test_a_changed_value_runs_what_it_changes_and_nothing_else(finished, path, old, new, methods):
    with finished.edited((path, old, new)):
        jobs = finished.would_run()
    assert {output.split("/")[-2].split("-")[2] for output in jobs["train"]} == methods
    assert len(jobs["evaluate"]) == len(methods)
    assert "prepare" not in jobs
    assert {"collect", "table_time", "figure_loss_step", "page"} <= set(jobs)


def test_a_changed_judgement_makes_tables_and_figures_only(finished):
    margin = "judgement: {margin_nats: 0.5}\n"
    with finished.edited(("configs/experiments/toy.yaml", "tasks:", f"{margin}tasks:")):
        jobs = set(finished.would_run())
    shown = {f"table_{table}" for table in TABLES} | {f"figure_{figure}" for figure in FIGURES}
    assert jobs == shown | {"page", "all"}


def test_a_run_that_fails_leaves_its_records_and_is_not_done(project):
    spec = next(s for s in load_experiment("smoke").runs() if s.method.name == "topk")
    folder = project.root / "results/smoke/runs" / spec.run_id
    target = f"results/smoke/runs/{spec.run_id}/trained"
    done = project.snakemake(target, *SMOKE, topk="failed")
    assert done.returncode != 0
    assert not (folder / "trained").exists(), "a failed run is not taken for a finished one"
    assert read_json(folder / "status.json")["status"] == "failed"
    assert (folder / "checkpoint/weights").exists(), "the next attempt goes on from here"


# what it says when it cannot


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("experiment=nope", "no file configs/experiments/nope.yaml; there are"),
        ("experment=smoke", "the only setting is"),
        ("experiment=toy", "experiment toy: tables nope: allowed are variants"),
    ],
)
def test_bad_settings_are_one_screen(project, setting, message):
    toy = project.root / "configs/experiments/toy.yaml"
    toy.write_text(toy.read_text() + "tables: [nope]\n")
    done = project.snakemake("--dry-run", "--config", setting)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert message in text
    assert "Traceback" not in text
    assert len(text.splitlines()) < 12
