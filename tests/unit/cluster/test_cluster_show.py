"""What commands print fits a terminal of eighty columns, with every number whole."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.core.base.errors import EXIT_BAD_INPUT
from edgc.report.plan import EXCHANGE, GATHERS, LATENCIES, REST, number, percent, rounded
from edgc.suite.cluster.forecasts import CLEAR, UTILISATIONS
from edgc.suite.cluster.memory import CATEGORIES
from edgc.suite.cluster.question import SITE_CLUSTER, SITE_METHODS, SITE_MODEL, Question

METHODS = [
    "dense_bf16_overlap",
    "diloco",
    "delayed",
    "powersgd",
    "edgc",
    "edgc_pipeline",
    "edgc_measured",
    "topk",
    "int4",
]
WHOLE = {"diloco", "delayed", "edgc_pipeline"}  #: those of them that full shards, or any, are not for
PLANS = {
    "a cluster": ["--model", "gpt2-2.5b", "--cluster", "v100x32"],
    "shards": ["--model", "gpt2-2.5b", "--cluster", "v100x32", "--shard", "optimizer", "--parameter-wire", "int8"],
    "full shards": ["--model", "gpt2-345m", "--cluster", "v100x32", "--shard", "full", "--global-batch", "512"],
    "sites": ["--sites", "8", "--link", "1gbit", "--latency", "20"],
    "a slow link": ["--model", "gpt2-12.1b", "--cluster", "h100x64", "--precision", "tf32", "--link", "10mbit"],
}


def printed(*arguments: str, columns: int = 80) -> str:
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.tier("test")
@pytest.mark.parametrize("command", ["methods", "experiments"])
def test_lists_fit_and_tell_what_their_json_tells(command: str) -> None:
    text, rows = printed(command), json.loads(printed(command, "--json"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert [line.split()[0] for line in text.splitlines() if not line.startswith(" ")] == [row["name"] for row in rows]
    for row in rows[::10]:
        alone = "".join(printed(command, row["name"]).split())  # long words are folded
        for value in json.loads(printed(command, row["name"], "--json"))[0].values():
            for told in value if isinstance(value, list) else [value]:
                words = f"{told:g}" if isinstance(told, float) else str(told)
                assert "".join(words.split()) in alone, row["name"]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(asked, id=name, marks=pytest.mark.tier("test" if name in ("a cluster", "sites") else "all"))
        for name, asked in PLANS.items()
    ],
)
def test_a_plan_fits_and_its_numbers_are_those_of_its_json(asked: list[str]) -> None:
    methods = [name for name in METHODS if "--shard" not in asked or name not in WHOLE]
    command = ["plan", *asked, *(word for name in methods for word in ("--method", name))]
    text, plain = printed(*command), json.loads(printed(*command, "--json"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    tables, _, words = text.partition("Loss gaps (nats)")
    rows = [line for line in tables.splitlines() if line.startswith(" ")]
    shown = {word.strip(",") for line in rows for word in line.split() if re.fullmatch(r"[+−]?[\d.]+(e−\d+)?,?", word)}
    known = {word for method in plain["methods"] for word in numbers(method, plain)}
    assert shown == known | {str(share) for share in UTILISATIONS} | {"0.02"}  # in headings
    assert not re.search(r"\de\+", text)
    kept = [method for method in plain["methods"] if keeps_its_loss(method)]
    fastest = min(kept, key=lambda method: method["iteration_s"], default={"method": None})
    assert plain["fastest_kept"] == fastest["method"]
    flat = " ".join(words.split())
    assert not kept or f"below 0.02 nats: {fastest['title']}. It saves" in flat
    assert ("saves time here: stay with" in flat) == (bool(kept) and fastest["high_percent"] < CLEAR)
    assert all(method["loss_verdict"] in flat for method in plain["methods"] if method["method"] != "dense")


def keeps_its_loss(method: dict[str, Any]) -> bool:
    """Whether the nearest controlled number of a method that is not dense says so."""
    return method["candidate"] and method["within_margin"] == "yes"


def numbers(method: dict[str, Any], plan: dict[str, Any]) -> set[str]:
    """As the tables round them."""
    base = next(other for other in plan["methods"] if other["method"] == plan["baseline"])
    gpus = math.prod(plan["parallel"].values())
    found = {number(method["iteration_s"], 4), rounded(24 * gpus * (base["days"] - method["days"]))}
    three = [method["days"], method["break_even_gbit"], *method["amounts"], *method["latency_s"].values()]
    three += [gbit for gbit in method["needs_gbit"].values() if gbit]  # 0: any link
    three += [method["settled"][part] for part in (*REST, *EXCHANGE, *GATHERS) if part in method["settled"]]
    found |= {number(value) for value in three if value is not None} | {str(method["highest_rank"] or "–")} - {"–"}
    gaps = [gap for gap in (method["loss_gap"], *method["published"][:1]) if gap]
    found |= {f"{gap['gap']:+.3f}".replace("-", "−") for gap in gaps}
    found |= {rounded(method[f"{what}_percent"], 1) for what in ("saving", "saving_fp32", "low", "high", "utilisation")}
    return found | {rounded(method["latency_reduction_percent"][kind], 1) for kind in LATENCIES}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.00862, "0.00862"), (-2.345, "−2.35"), (999.4, "999"), (999.6, "1000"), (22531.4, "22531")],
)
def test_a_number_never_has_an_exponent_because_it_is_large(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.tier("test")
def test_sites_hold_whole_replicas_and_are_asked_what_users_weigh_there(tmp_path: Path) -> None:
    """Without a published experiment, too: then no gap is known."""
    plain = json.loads(printed("plan", *PLANS["sites"], "--results", str(tmp_path), "--json"))
    assert (plain["model"], plain["cluster"]) == (SITE_MODEL, SITE_CLUSTER)
    assert (plain["parallel"]["pipeline"], plain["parallel"]["data"]) == (1, 8)
    assert {method["method"] for method in plain["methods"]} == set(SITE_METHODS)
    assert {method["loss_gap"] for method in plain["methods"]} == {None}
    assert plain["fastest_kept"] in (None, "streaming_diloco")
    notes = {method["method"]: method["notes"] for method in plain["methods"]}
    assert "parallel.tensor is 4" in notes["muloco"][0], "it is planned, and could not be trained here"
    assert not notes["diloco"]


@pytest.mark.tier("test")
@pytest.mark.parametrize("model", ["gpt2-124m", "gpt2-345m"])
def test_sites_can_be_asked_of_any_model(model: str) -> None:
    """The first is in an experiment on the same cluster that is about shards."""
    told = json.loads(printed("plan", *PLANS["sites"], "--model", model, "--json"))
    assert {method["method"] for method in told["methods"]} == set(SITE_METHODS)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--sites", "8", "--nodes", "4"], "--sites 8 --nodes 4: a site is a node"),
        (["--sites", "8", "--pipeline", "2"], "--sites 8 --pipeline 2: every site has whole replicas"),
        (["--model", "gpt2-2.5b"], "--cluster is missing"),
        (["--cluster", "v100x32"], "--model is missing"),
    ],
)
def test_what_cannot_be_planned_is_refused(asked: list[str], told: str) -> None:
    failed = CliRunner().invoke(app, ["plan", *asked])
    assert failed.exit_code == EXIT_BAD_INPUT
    assert told in " ".join(failed.output.split())


def test_a_half_written_experiment_of_others_is_told_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Question("gpt2-2.5b", "v100x32")
    whole = asked.spec()
    (tmp_path / "configs/experiments").mkdir(parents=True)
    (tmp_path / "configs/experiments/a.yaml").write_text("name: a\nmodels: [gpt2-345m]\n")
    monkeypatch.chdir(tmp_path)
    assert asked.spec() == whole
    assert re.search(r"Experiment a is not looked at .*a\.yaml", capsys.readouterr().err)


def test_what_rounds_to_nothing_has_no_sign() -> None:
    assert (percent(-0.04), percent(-0.06), rounded(-0.4)) == ("0.0 %", "−0.1 %", "0")


def test_memory_fits_a_terminal_and_says_what_does_not_fit() -> None:
    command = ["plan", "--memory", *PLANS["a cluster"], "--method", "dense", "--method", "powersgd"]
    text, rows = printed(*command), json.loads(printed(*command, "--json"))
    assert max(map(len, text.splitlines())) <= 80
    assert "32 GB" in text
    stages = len({row["stage"] for row in rows})
    assert stages > 1
    shown = [line.split() for line in text.splitlines() if re.search(r"(yes|no)\s*$", line)]
    assert [(line[0], int(line[1])) for line in shown] == [(row["method"], row["stage"]) for row in rows]
    for line, row in zip(shown, rows, strict=True):
        parts = [row[f"{name}_gbyte"] for name in (*CATEGORIES, "total")]
        assert line[2:] == [*(f"{part:.2f}" for part in parts), "yes" if row["total_gbyte"] <= 32 else "no"]
        assert row["total_gbyte"] == pytest.approx(sum(parts[:-1]))
        assert (row["method_gbyte"] > 0) == (row["method"] == "powersgd")
    larger = ["plan", "--memory", "--model", "gpt2-12.1b", "--cluster", "v100x32", "--method", "powersgd", "--json"]
    assert not all(row["fits"] for row in json.loads(printed(*larger)))
