"""Seeds until verdicts are decided: each look asks for the next seed's runs, and nothing that was run is run again."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from edgc.config import load_experiment
from tests.workflow.conftest import Project

TABLE = "results/toy/tables/accuracy.csv"
#: By the stand-in's losses PowerSGD's gap is the margin, and Top-K's far above it.
SEEDS = "seeds: {first: 3, most: 4, until: decided}\njudgement: {margin_nats: 0.01}"


def of_runs(project: Project) -> dict[str, list[int]]:
    """Seeds that were run, by method."""
    found: dict[str, list[int]] = {}
    for folder in sorted((project.root / "results/toy/runs").iterdir()):
        _, method, seed = folder.name.removeprefix("gpt2-").split("-")[:3]
        found.setdefault(method, []).append(int(seed[1:]))
    return found


def edited(toy: Path, old: str, new: str) -> None:
    assert old in toy.read_text()
    toy.write_text(toy.read_text().replace(old, new))


def made(project: Project) -> str:
    done = project.snakemake(TABLE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_seeds_are_added_where_a_verdict_is_open_and_nothing_is_lost(project: Project) -> None:
    toy = project.root / "configs/experiments/toy.yaml"
    edited(toy, "seeds: [1]", SEEDS)
    edited(toy, "[dense, powersgd, edgc]", "[dense, powersgd, topk]")
    edited(toy, "overrides:\n  edgc: {method: {policy: {window: 10, alpha: 0.5}}}\n", "")
    edited(toy, "tasks: [stdlib_cloze]\n", "")
    first = project.would_run("--nolock", TABLE)
    assert len(first["train"]) == 9, "what is certain"
    assert first["look"] == ["results/toy/looks/3.json"]

    made(project)
    assert of_runs(project) == {"dense": [1, 2, 3, 4], "powersgd": [1, 2, 3, 4], "topk": [1, 2, 3]}
    table = pd.read_csv(project.root / TABLE).set_index("method")
    assert table["decided"].dropna().to_dict() == {"powersgd": "open at most", "topk": "decided"}
    assert project.would_run("--nolock", TABLE) == {}, "a second call has nothing to do"

    before = {path: path.stat().st_mtime_ns for path in (project.root / "results/toy/runs").rglob("steps.jsonl")}
    edited(toy, "most: 4", "most: 5")
    made(project)
    assert of_runs(project)["powersgd"] == [1, 2, 3, 4, 5]
    assert {path: path.stat().st_mtime_ns for path in before} == before, "no run is made again"
    assert pd.read_csv(project.root / TABLE).set_index("method").loc["powersgd", "pairs"] == 5


def test_where_short_runs_share_a_job_added_ones_have_their_own(project: Project) -> None:
    edited(project.root / "configs/experiments/toy.yaml", "seeds: [1]", SEEDS)
    laptop = project.root / "configs/clusters/laptop.yaml"
    laptop.write_text(laptop.read_text() + "schedule: {runs_per_job: 4, time_minutes: 10}\n")
    configs = project.root / "configs"
    added = load_experiment("toy", configs).runs_at_most(configs)[3].run_id
    jobs = project.would_run("--nolock", f"results/toy/runs/{added}/trained", "results/toy/looks/3.json")
    assert jobs["train"] == [f"results/toy/runs/{added}/trained"]
    assert [len(jobs[f"train_toy_{number}"][0].split(", ")) for number in range(3)] == [4, 4, 1]
