"""Seeds until verdicts are decided: which runs a look asks for, and who knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.report import verdicts
from edgc.report.collect import gather
from edgc.report.interim_looks import look
from edgc.report.planned_runs import all_asked, asked, look_path
from edgc.report.status.progress import choose, ended, read
from edgc.report.status.view import view
from edgc.report.study import Study
from edgc.report.tables import accuracy
from edgc.suite.config import Experiment, load_experiment
from tests.fixtures.configs import put, write_configs
from tests.fixtures.studies import tiny_reference

NOW = 1_700_000_000.0
#: Losses above dense's by seed. PowerSGD's are near the margin of 0.02 and vary, Top-K's are far above it.
GAPS = {"powersgd": (0.01, 0.03, 0.02, 0.01, 0.03), "topk": (0.3, 0.301, 0.302), "edgc": (0.0, 0.0001, -0.0001)}
SENT = {"dense": 1000, "powersgd": 200, "topk": 10, "edgc": 100}  # bytes of a run


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return write_configs(tmp_path / "configs", put("seeds", {"first": 3, "most": 5, "until": "decided"}))


def ran(
    experiment: Experiment, results: Path, configs: Path, gaps: Mapping[str, Sequence[float]] = GAPS, **status: str
) -> None:
    """End those runs that are asked for and have not ended; keywords say how a method's end."""
    for spec in asked(experiment, results, configs).specs:
        folder = results / experiment.name / "runs" / spec.run_id
        method = spec.method.name
        gap = gaps[method][spec.seed - 1] if method in gaps else 0.0
        how = {"status": status.get(method, "done"), "validation_loss": 4.0 + 0.1 * spec.seed + gap, "step": 10}
        if not folder.exists():
            files.write_json(folder / "status.json", how)
            files.append_jsonl(folder / "evals.jsonl", [{"step": 10, "wire_bytes": SENT[method]}])
            files.write_json(folder / "manifest.json", {"device": {"kind": "cpu", "count": 4, "model": "CPU"}})


def added(path: Path) -> list[str]:
    """The runs that a look asks for, as `method-s4`."""
    return ["-".join(run.split("-")[1:3]) for run in files.read_json(path)["runs"]]


def test_no_look_is_taken_before_all_runs_have_ended(tmp_path: Path, configs: Path) -> None:
    experiment, results = load_experiment("trial", configs), tmp_path / "results"
    ran(experiment, results, configs)
    spec = asked(experiment, results, configs).specs[-1]
    (results / "trial" / "runs" / spec.run_id / "status.json").unlink()
    with pytest.raises(UserError, match=f"1 of 12 runs have not ended, such as {spec.run_id}"):
        look(experiment, 3, results, configs)
    status = results / "trial" / "runs" / spec.run_id / "status.json"
    files.write_json(status, {"status": "timeout", "step": 5})  # started again, it goes on
    with pytest.raises(UserError, match="1 of 12 runs have not ended"):
        look(experiment, 3, results, configs)
    assert not look_path("trial", 3, results).exists()


def test_seeds_go_to_open_verdicts_and_their_baseline(tmp_path: Path, configs: Path) -> None:
    experiment, results = load_experiment("trial", configs), tmp_path / "results"
    assert (len(asked(experiment, results, configs).specs), asked(experiment, results, configs).at_most) == (12, 20)

    ran(experiment, results, configs)
    path = look(experiment, 3, results, configs)
    assert path == look_path("trial", 3, results)
    assert added(path) == ["dense-s4", "powersgd-s4"]
    assert files.read_json(path)["verdicts"] == {
        "tiny": {"dense": ["baseline"], "powersgd": ["open"], "topk": ["worse"], "edgc": ["preserved"]}
    }
    found = asked(experiment, results, configs)
    assert (len(found.specs), found.at_most, found.complete) == (14, 16, False)

    ran(experiment, results, configs)
    assert added(look(experiment, 4, results, configs)) == ["dense-s5", "powersgd-s5"]
    found = asked(experiment, results, configs)
    assert (len(found.specs), found.complete) == (16, True), "the most are reached: no look follows"
    with pytest.raises(UserError, match=r"seeds 5: experiment trial has looks at 3 to 4"):
        look(experiment, 5, results, configs)


def test_it_ends_when_all_is_decided(tmp_path: Path, configs: Path) -> None:
    experiment, results = load_experiment("trial", configs), tmp_path / "results"
    ran(experiment, results, configs, GAPS | {"powersgd": (0.0, 0.0001, 0.0002)})
    assert added(look(experiment, 3, results, configs)) == []
    assert asked(experiment, results, configs).complete


def test_a_run_that_diverged_is_a_result_and_gets_no_seeds(tmp_path: Path, configs: Path) -> None:
    experiment, results = load_experiment("trial", configs), tmp_path / "results"
    ran(experiment, results, configs, powersgd="diverged")
    path = look(experiment, 3, results, configs)
    assert added(path) == []
    assert files.read_json(path)["verdicts"]["tiny"]["powersgd"] == ["diverged (3 of 3)"]


def test_without_any_pair_more_seeds_would_not_help(tmp_path: Path, configs: Path) -> None:
    experiment, results = load_experiment("trial", configs), tmp_path / "results"
    ran(experiment, results, configs, dense="diverged")
    assert added(look(experiment, 3, results, configs)) == []


@pytest.fixture
def sparing(tmp_path: Path) -> Path:
    seeds = {"first": 3, "most": 5, "until": "decided", "spare_beaten": True}
    return write_configs(tmp_path / "sparing", put("seeds", seeds))


def test_a_method_that_a_cheaper_one_beats_keeps_its_first_seeds(tmp_path: Path, sparing: Path) -> None:
    experiment, results = load_experiment("trial", sparing), tmp_path / "results"
    spread = (0.01, 0.05, 0.03)  # open, and above edgc's by more than chance explains
    ran(experiment, results, sparing, GAPS | {"powersgd": spread, "edgc": tuple(gap - 0.02 for gap in spread)})
    path = look(experiment, 3, results, sparing)
    assert files.read_json(path)["verdicts"]["tiny"] == {
        "dense": ["baseline"], "powersgd": ["beaten by edgc"], "topk": ["worse"], "edgc": ["open"]
    }  # fmt: skip
    assert added(path) == ["dense-s4", "edgc-s4"]

    ran(experiment, results, sparing, {"edgc": (0, 0, 0, -0.05)})
    assert files.read_json(look(experiment, 4, results, sparing))["verdicts"]["tiny"]["powersgd"] == ["spared before"]
    ran(experiment, results, sparing, {"edgc": (0, 0, 0, 0, -0.08)})
    table = table_of(experiment, results, sparing)
    shown = dict(zip(table["method"], accuracy.ACCURACY.present(table)["Verdict"], strict=True))
    assert shown["powersgd"] == "open, beaten by T (n = 3)"
    assert shown["edgc"] == "open at most (n = 5)"
    assert "1 of 3 verdicts are decided, 1 more left open, as a method that sends" in accuracy.paragraph(table)
    assert "open, beaten by" in accuracy.ACCURACY.captions(experiment)["Verdict"]


def test_only_a_cheaper_method_on_the_same_model_spares_another(tmp_path: Path, sparing: Path) -> None:
    experiment, results = load_experiment("trial", sparing), tmp_path / "results"
    spread = (0.01, 0.05, 0.03)
    ran(experiment, results, sparing, GAPS | {"edgc": spread, "powersgd": tuple(gap - 0.02 for gap in spread)})
    assert files.read_json(look(experiment, 3, results, sparing))["verdicts"]["tiny"]["edgc"] == ["open"]


def test_looking_again_changes_nothing(tmp_path: Path, configs: Path) -> None:
    """Also when later seeds have been run since: a look is at the seeds that it is named after."""
    experiment, results = load_experiment("trial", configs), tmp_path / "results"
    for seeds in (3, 4):
        ran(experiment, results, configs)
        look(experiment, seeds, results, configs)
    before = look_path("trial", 3, results).read_bytes()
    ran(experiment, results, configs)
    assert look(experiment, 3, results, configs).read_bytes() == before


def test_given_seeds_have_no_look(tmp_path: Path) -> None:
    configs = write_configs(tmp_path / "configs")
    experiment = load_experiment("trial", configs)
    assert asked(experiment, tmp_path, configs).specs == tuple(experiment.runs(configs))
    with pytest.raises(UserError, match="its seeds are given"):
        look(experiment, 3, tmp_path, configs)


# what the table says


def table_of(experiment: Experiment, results: Path, configs: Path) -> pd.DataFrame:
    frames = gather(asked(experiment, results, configs).specs, results / experiment.name / "runs")
    return accuracy.build(Study(experiment, frames, tiny_reference([])))


def test_the_table_says_what_is_decided_at_which_n_and_what_stays_open(tmp_path: Path, configs: Path) -> None:
    experiment, results = load_experiment("trial", configs), tmp_path / "results"
    for seeds in (3, 4):
        ran(experiment, results, configs)
        halfway = table_of(experiment, results, configs).set_index("method")
        look(experiment, seeds, results, configs)
    ran(experiment, results, configs)
    table = table_of(experiment, results, configs)
    shown = dict(zip(table["method"], accuracy.ACCURACY.present(table)["Verdict"], strict=True))
    assert shown == {
        "dense": "baseline",
        "powersgd": "open at most (n = 5)",
        "topk": "worse (decided, n = 3)",
        "edgc": "preserved (decided, n = 3)",
    }
    assert halfway.loc["powersgd", "decided"] == "open"
    assert accuracy.paragraph(table) == "2 of 3 verdicts are decided; left: T (open at most, n = 5)."
    rows = table.set_index("method")
    fixed = verdicts.interval(pd.Series(GAPS["powersgd"]))
    assert rows.loc["powersgd", "gap_high"] > fixed[2], "valid at any look, hence wider"
    assert rows.loc["powersgd", "gap_sd"] == pytest.approx(0.01)
    caption = accuracy.ACCURACY.captions(experiment)
    assert "valid at any number of seeds from 3 to 5" in caption["Gap to baseline"]
    assert "open at most" in caption["Verdict"]


def test_a_table_of_given_seeds_is_as_it_ever_was(tmp_path: Path) -> None:
    configs = write_configs(tmp_path / "configs", put("seeds", [1, 2, 3]))
    experiment = load_experiment("trial", configs)
    ran(experiment, tmp_path, configs)
    table = table_of(experiment, tmp_path, configs)
    assert not {"decided", "gap_sd"} & {*table.columns}
    assert list(accuracy.ACCURACY.present(table)["Verdict"]) == ["baseline", "too few seeds", "worse", "preserved"]
    assert accuracy.paragraph(table) == ""
    assert accuracy.ACCURACY.captions(experiment) == accuracy.ACCURACY.captions()


# who else knows of them


def test_status_counts_what_is_there_and_what_may_come(tmp_path: Path, configs: Path) -> None:
    experiment, results = load_experiment("trial", configs), tmp_path / "results"
    ran(experiment, results, configs)

    def shown() -> tuple[str, bool]:
        found = [read(one, results, NOW) for one in choose(["trial"], results, configs)]
        return "\n".join(str(part) for part in view(found, 80).renderables), ended(found)

    text, over = shown()
    assert "12 runs: 12 done" in text
    assert "at most 20 runs: seeds are added until verdicts are decided" in text
    assert not over, "more may come"
    for seeds in (3, 4):
        look(experiment, seeds, results, configs)
        ran(experiment, results, configs)
    text, over = shown()
    assert "16 runs: 16 done" in text
    assert "at most" not in text
    assert over


def test_the_command_line_lists_runs_so_far_and_says_that_more_may_come(
    tmp_path: Path, configs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment("trial", configs)
    listed = CliRunner().invoke(app, ["runs", "-e", "trial"])
    assert listed.stdout.split() == [spec.run_id for spec in experiment.runs(configs)]
    assert "12 runs so far, at most 20" in listed.stderr
    row = CliRunner().invoke(app, ["experiments", "trial"]).stdout
    assert "runs_at_most" in row
    ran(experiment, Path("results"), configs)
    assert CliRunner().invoke(app, ["look", "trial", "3"]).exit_code == 0
    assert len(CliRunner().invoke(app, ["runs", "-e", "trial"]).stdout.split()) == 14


def test_what_may_still_grow_is_not_published(tmp_path: Path, configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment("trial", configs)
    with pytest.raises(UserError, match=r"12 of at most 20 runs so far; run the experiment to its end"):
        all_asked(experiment, Path("results"))
