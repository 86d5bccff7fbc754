"""What adaptation gains, from runs whose answers are known: two traces, a method that adapts, and its control."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from edgc.report.collect import amortised
from edgc.report.render import NOTHING
from edgc.report.study import Study
from edgc.report.tables import adaptation
from edgc.report.write import write_table
from tests.fixtures.studies import of, run, step, study

DROP = [{"at": 0, "rate": "200mbit", "processes": None}, {"at": 9, "rate": "20mbit", "processes": None}]
WAVE = [{"at": 0, "rate": "200mbit", "processes": None}, {"at": 5, "rate": "50mbit", "processes": None}]


def on(trace: str, method: str, seed: int, **numbers) -> dict:
    """A run on links that follow a trace."""
    changes, repeat = {"drop": (DROP, None), "wave": (WAVE, 10.0)}[trace]
    own = run(method, seed, device=f"2 × CPU; links: {trace}", **numbers)
    told = {"name": trace, "title": trace, "clock": "seconds", "repeat": repeat, "changes": json.dumps(changes)}
    return own | {f"spec.cluster.links.trace.{name}": value for name, value in told.items()}


def on_links(own: dict, *rows: tuple[float, float], **more) -> list[dict]:
    """Steps of (Mbit/s, seconds), which send 100 bytes each."""
    return [step(own, n, wire=seconds) | {"link_mbit": mbit} | more for n, (mbit, seconds) in enumerate(rows, 1)]


def judged(runs: list[dict], steps: list[dict] = (), decisions: list[dict] = (), **controls: str) -> Study:  # type: ignore[assignment]
    made = study(runs, steps, decisions=decisions)
    settings = made.experiment.judgement.model_copy(update={"controls": controls or {"edgc": "powersgd"}})
    return replace(
        made, experiment=made.experiment.model_copy(update={"judgement": settings, "tables": ("adaptation",)})
    )


def rows_of(made: Study) -> dict[tuple[str, str], dict]:
    table = adaptation.build(made)
    return {(row["trace"], row["method"]): dict(row) for _, row in table.iterrows()}


def finished(trace: str, method: str, *seconds_and_losses: tuple[float, float]) -> list[dict]:
    return [
        on(trace, method, seed, training_seconds=seconds, validation_loss=loss)
        for seed, (seconds, loss) in enumerate(seconds_and_losses, 1)
    ]


def test_a_gain_is_against_the_control_of_the_same_seed_on_the_same_trace() -> None:
    runs = finished("drop", "powersgd", (100, 4.0), (200, 4.2), (400, 4.4))
    runs += finished("wave", "powersgd", (50, 4.0), (50, 4.0), (50, 4.0))
    runs += finished("drop", "edgc", (50, 4.1), (120, 4.3), (280, 4.5))  # 50, 40 and 30 % less; 0.1 nats more
    runs += finished("wave", "edgc", (60, 4.0), (60, 4.0), (60, 4.0))
    rows = rows_of(judged(runs))
    assert rows["drop", "edgc"]["control"] == "Powersgd"
    shares = np.array([0.5, 0.6, 0.7])  # of the control's time
    mean = np.prod(shares) ** (1 / 3)
    factor = np.exp(4.302653 * np.std(np.log(shares), ddof=1) / np.sqrt(3))  # Student's t of two degrees of freedom
    for end, share in (("", mean), ("_low", mean * factor), ("_high", mean / factor)):
        assert rows["drop", "edgc"][f"saved_percent{end}"] == pytest.approx(100 * (1 - share), rel=1e-5)
    assert rows["drop", "edgc"]["gap"] == pytest.approx(0.1)
    assert rows["wave", "edgc"]["saved_percent"] == pytest.approx(-20)
    assert pd.isna(rows["drop", "powersgd"]["control"])
    assert np.isnan(rows["drop", "powersgd"]["saved_percent"])


def test_one_seed_has_a_gain_and_no_interval() -> None:
    made = judged([*finished("drop", "powersgd", (100, 4.0)), *finished("drop", "edgc", (75, 4.1))])
    row = rows_of(made)["drop", "edgc"]
    assert (row["saved_percent"], row["pairs"]) == (pytest.approx(25), 1)
    assert np.isnan(row["saved_percent_low"])
    assert adaptation.paragraph(adaptation.build(made)) == (
        "Drop: Edgc took 25.0 % less time than Powersgd (one seed: no interval), and its loss differs by +0.1000 nats."
    )


def test_a_run_that_did_not_finish_gains_nothing() -> None:
    runs = finished("drop", "powersgd", (100, 4.0))
    runs += [on("drop", "edgc", 1, status="diverged", training_seconds=5.0)]
    made = judged(runs)
    assert np.isnan(rows_of(made)["drop", "edgc"]["saved_percent"])
    assert adaptation.paragraph(adaptation.build(made)).startswith("Nothing can be said")


def test_steps_count_where_their_mean_rate_is_nearest() -> None:
    """Nearest as a ratio: 60 Mbit/s is nearer to 20 than to 200, and 70 is not."""
    one, two = finished("drop", "powersgd", (100, 4.0), (100, 4.0))
    steps = on_links(one, (200, 1.0), (60, 5.0), (20, 7.0)) + on_links(two, (200, 1.0), (70, 4.0), (20, 9.0))
    row = rows_of(judged([one, two], steps))["drop", "powersgd"]
    assert (row["step_s_at_200"], row["steps_at_200"]) == (2.0, 1.5)
    assert (row["step_s_at_20"], row["steps_at_20"]) == (7.0, 1.5)
    assert row["wire_bytes"] == 300


def test_amounts_are_ranks_of_windows_or_local_steps_between_exchanges() -> None:
    adapts, paced, fixed = (finished("drop", method, (9, 4.0))[0] for method in ("edgc", "topk", "powersgd"))
    decisions = [of(adapts, step=at, stage=0, parameter="w", rank=rank) for at, rank in ((0, 32), (10, 4), (40, 1))]
    decisions += [of(fixed, step=0, stage=0, parameter="w", rank=16)]
    steps = [
        row | {"local_steps": h} for row, h in zip(on_links(paced, *[(20, 1.0)] * 4), (5, np.nan, 12, 2), strict=True)
    ]
    rows = rows_of(judged([adapts, paced, fixed], [*steps, *on_links(fixed, (20, 1.0))], decisions))
    assert [rows["drop", "edgc"][name] for name in ("low_amount", "high_amount", "unit")] == [4, 32, "rank"]
    assert [rows["drop", "topk"][name] for name in ("low_amount", "high_amount", "unit")] == [5, 12, "local steps"]
    assert np.isnan(rows["drop", "powersgd"]["low_amount"]), "it decides once"


def test_the_period_that_a_runs_end_cuts_short_does_not_count_for_any_seed() -> None:
    runs = finished("drop", "topk", (9, 4.0), (9, 4.0))
    each_run = [row for own in runs for row in on_links(own, *[(20, 1.0)] * 3)]
    steps = [row | {"local_steps": h} for row, h in zip(each_run, (5, 8, 1, 6, 9, 2), strict=True)]
    row = rows_of(judged(runs, steps))["drop", "topk"]
    assert (row["low_amount"], row["high_amount"]) == (5, 9)


def test_a_period_that_a_run_chose_is_spread_over_its_own_steps() -> None:
    rows = [{"t_step": t, "wire_bytes": b} for t, b in ((1.0, 0), (4.0, 30), (1.0, 0), (1.0, 0), (7.0, 30), (2.0, 0))]
    for number, local in ((1, 2), (4, 3)):
        rows[number] |= {"local_steps": local}
    spread = amortised(rows, 20)
    assert [row["t_step"] for row in spread] == [2.5, 2.5, 3.0, 3.0, 3.0, 2.0]
    assert [row["wire_bytes"] for row in spread] == [15, 15, 10, 10, 10, 0]


@pytest.mark.parametrize("traced", [True, False])
def test_the_table_is_written_with_a_column_a_rate(traced: bool, tmp_path) -> None:
    runs = (
        [*finished("drop", "powersgd", (100, 4.0)), *finished("wave", "edgc", (75, 4.1))] if traced else [run("edgc")]
    )
    steps = on_links(runs[0], (200, 1.0), (20, 2.0)) if traced else []
    write_table("adaptation", judged(runs, steps), tmp_path)
    text = (tmp_path / "adaptation.md").read_text()
    assert ("At 20 Mbit/s (ms)" in text) == traced
    assert NOTHING in text or not traced
