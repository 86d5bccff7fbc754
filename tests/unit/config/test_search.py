"""`edgc search`: what is tried, kept, refused and gone on with; trainings are stood in for."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.suite.config import CONFIGS
from edgc.suite.training.data.corpus_files import corpus_id
from edgc.tools import search

FILE = """
name: small
title: Small
experiment: ladder
method: powersgd_8_4
trials: 7
share: 0.1
space:
  method.policy.rank: [4, 8, 16]
  method.aggregator.rotation: [false, true]
  method.aggregator.block: [96, 128]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a search, whose trainings end at once: the loss falls and bytes rise with the rank."""
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "configs/searches").mkdir(exist_ok=True)
    (tmp_path / "configs/searches/small.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    _, base = search.load_search("small")
    (tmp_path / "results/corpora" / corpus_id(base.corpus)).mkdir(parents=True)
    (tmp_path / "results/corpora" / corpus_id(base.corpus) / "manifest.json").write_text("{}")

    def train(spec: Path, out: Path, corpus: Path) -> None:
        rank = files.read_json(spec)["method"]["policy"]["rank"]
        done = {"status": "diverged"} if rank == 4 else {"status": "done", "validation_loss": 5 - rank / 100}
        files.write_json(out / "status.json", done)
        files.write_jsonl(
            out / "steps.jsonl", [{"wire_bytes": 15 * rank, "dense_bytes": 1000}]
        )  # trials may share a run

    monkeypatch.setattr(search, "_train", train)
    return tmp_path


def test_all_trials_are_kept_with_what_came_of_them(place: Path) -> None:
    found = pd.read_parquet(search.run("small", 2, place / "results"))
    done, refused = (found[found["state"] == state] for state in ("complete", "pruned"))
    assert found.loc[found["state"].isin(("complete", "fail")), "run_id"].nunique() == 7
    ranks = done["method.policy.rank"].astype(int)
    assert done["loss"].tolist() == pytest.approx([5 - rank / 100 for rank in ranks])
    assert done["bytes"].tolist() == pytest.approx([rank / 100 for rank in ranks]), "1.5 times dense bytes are sent"
    assert set(found.loc[found["state"] == "fail", "message"]) <= {"diverged"}
    assert all("block 96: with rotation it must be a power of two" in message for message in refused["message"])
    again = pd.read_parquet(search.run("small", 2, place / "results"))
    assert len(again) == len(found), "there are enough"


def test_published_are_all_trials_and_the_best_within_the_share(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="search small: 0 of 7 trials were run"):
        search.publish("small", place / "results")
    trials = pd.read_parquet(search.run("small", 2, place / "results"))
    with pytest.raises(UserError, match=r"no spec\.json, manifest\.json"):
        search.publish("small", place / "results")
    checked: list[Path] = []
    monkeypatch.setattr(search, "check", checked.append)
    monkeypatch.setattr(search.manifests, "write", lambda path, runs: path.write_text(f"{len(runs)}"))
    target = search.publish("small", place / "results")
    ran = trials[trials["state"].isin(("complete", "fail"))]
    assert {run.name for run in checked} == {*ran["run_id"]}
    assert len(pd.read_parquet(target / "trials.parquet")) == len(trials)
    said = (target / "trials.md").read_text()
    failed, refused = (trials.loc[trials["state"] == state] for state in ("fail", "pruned"))
    told = f"7 trials were run, {failed['run_id'].nunique()} of them did not end well. {len(refused)} more were refused"
    assert told in said
    within = trials[(trials["state"] == "complete") & (trials["bytes"] <= 0.1)].drop_duplicates("run_id")
    rows = [line.split(" | ")[1:3] for line in said.splitlines() if line[:1] == "|"]
    assert rows[2:] == [["8.00", "4.9200"]] * len(within), "others send 16 %"
    assert len(within) > 0


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"name": "ramp", "share": 0.03, "bits": [4, 8]}, "name=ramp, share=0.03, bits=[4, 8]"),
        (True, "true"),
        (None, "null"),
        (0.004, "0.004"),
    ],
)
def test_a_setting_is_told_as_a_file_has_it(value: Any, told: str) -> None:
    assert search._shown(value) == told


def test_a_search_that_wants_more_than_there_is_ends(place: Path) -> None:
    (place / "configs/searches/small.yaml").write_text(FILE.replace("trials: 7", "trials: 10"))
    with pytest.raises(UserError, match=r"\d of 10 trials were run, .* lower trials, or give space more values"):
        search.run("small", 2, place / "results")


def test_a_trial_that_was_stopped_is_tried_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, seen = search._train, []

    def stopped(spec: Path, *more: Any) -> None:
        seen.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "_train", stopped)
    with pytest.raises(KeyboardInterrupt):
        search.run("small", 1, place / "results")
    monkeypatch.setattr(search, "_train", lambda spec, *more: (seen.append(spec), train(spec, *more)))
    search.run("small", 1, place / "results")
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("method: powersgd_8_4", "method nope: experiment ladder has dense"),
        ("  method.policy.rank: [4, 8, 16]", "policy.rnk"),
        ("  method.policy.rank: [4, 8, 16]", "space.method.policy.rank: give at least one value"),
        ("experiment: ladder", "no file configs/experiments/nope.yaml"),
        ("  method.policy.rank: [4, 8, 16]", "experiment ladder: parallel.data = 1: .* use at least 2"),
    ],
)
def test_what_is_not_there_is_refused(place: Path, line: str, told: str) -> None:
    wrong = {"policy.rnk": "  method.policy.rnk: [4]", "give": "  method.policy.rank: []"}
    wrong["parallel.data"] = "  parallel.data: [1]"
    new = next((text for part, text in wrong.items() if part in told), f"{line.split(':')[0]}: nope")
    (place / "configs/searches/small.yaml").write_text(FILE.replace(line, new))
    with pytest.raises(UserError, match=told):
        search.load_search("small")
