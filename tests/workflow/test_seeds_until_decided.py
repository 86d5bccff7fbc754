"""Seeds until verdicts are decided: each look asks for the next seed's runs, and nothing that was run is run again."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from edgc.suite.config import load_experiment
from tests.workflow.conftest import Project

TABLE = "results/toy/tables/accuracy.csv"


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


def written(project: Project) -> dict[Path, int]:
    """When each run's records were written."""
    return {path: path.stat().st_mtime_ns for path in (project.root / "results/toy/runs").rglob("steps.jsonl")}


def made(project: Project) -> None:
    done = project.snakemake(TABLE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.tier("all")
def test_seeds_are_added_where_a_verdict_is_open_and_nothing_is_lost(project: Project) -> None:
    """From given seeds to as many as are needed, and to more of them: what was run stays.

    By the stand-in's losses PowerSGD's gap is about the margin, and Top-K's far above it.
    """
    toy = project.root / "configs/experiments/toy.yaml"
    edited(toy, "seeds: [1]", "seeds: [1, 2, 3]\njudgement: {margin_nats: 0.01}")
    edited(toy, "[dense, powersgd, edgc]", "[dense, powersgd, topk]")
    edited(toy, "overrides:\n  edgc: {method: {policy: {window: 10, alpha: 0.5}}}\n", "")
    edited(toy, "tasks: [stdlib_cloze]\n", "")
    made(project)
    before = written(project)

    edited(toy, "seeds: [1, 2, 3]", "seeds: {first: 3, most: 4, until: decided}")
    assert project.would_run("--nolock", TABLE)["look"] == ["results/toy/looks/3.json"]
    made(project)
    assert of_runs(project) == {"dense": [1, 2, 3, 4], "powersgd": [1, 2, 3, 4], "topk": [1, 2, 3]}
    table = pd.read_csv(project.root / TABLE).set_index("method")
    assert table["decided"].dropna().to_dict() == {"powersgd": "open at most", "topk": "decided"}
    assert project.would_run("--nolock", TABLE) == {}, "a second call has nothing to do"

    edited(toy, "most: 4", "most: 5")
    made(project)
    assert of_runs(project)["powersgd"] == [1, 2, 3, 4, 5]
    assert pd.read_csv(project.root / TABLE).set_index("method").loc["powersgd", "pairs"] == 5
    assert before.items() <= written(project).items(), "no run is made again"


def test_where_short_runs_share_a_job_added_ones_have_their_own(project: Project) -> None:
    edited(project.root / "configs/experiments/toy.yaml", "seeds: [1]", "seeds: {first: 3, most: 4, until: decided}")
    laptop = project.root / "configs/clusters/laptop.yaml"
    laptop.write_text(laptop.read_text() + "schedule: {runs_per_job: 4, time_minutes: 10}\n")
    planned = project.would_run()
    jobs = [outputs[0].split(", ") for rule, outputs in planned.items() if rule.startswith("train_toy_")]
    assert sorted(map(len, jobs)) == [1, 4, 4]
    assert (len(planned["evaluate"]), planned["look"]) == (9, ["results/toy/looks/3.json"]), "what is certain"
    configs = project.root / "configs"
    added = load_experiment("toy", configs).runs_at_most(configs)[3].run_id
    trained = f"results/toy/runs/{added}/trained"
    assert project.would_run("--nolock", trained)["train"] == [trained]
