"""Table and figures of a timing session, from step times whose answers can be computed in the head."""

import math
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_text
from edgc.report import pictures, verdicts
from edgc.report import timed_steps as sessions
from edgc.report.collect import gather
from edgc.report.figures import exposed
from edgc.report.figures.curves import LOSS_ON_LINKS
from edgc.report.figures.exposed import EXPOSED
from edgc.report.figures.fronts import GAP_ON_LINKS
from edgc.report.figures.step_times import STEP_PARTS_ON_LINKS
from edgc.report.selection import FIGURES, TABLES, TIME, names, table_named
from edgc.report.study import Study, load_study
from edgc.report.style import LEGEND
from edgc.report.tables import links
from edgc.report.tables.links import LINKS, LINKS_BYTES, LINKS_CONDITIONS
from edgc.report.write import write_figure, write_table
from edgc.suite.config import CONFIGS, load_experiment
from tests.fixtures.pictures import beyond, legend
from tests.fixtures.sessions import FAST, SLOW, STEPS, at, published, row_of, session
from tests.fixtures.studies import tiny_reference
from tests.fixtures.synthetic_runs import write_session


@pytest.fixture(scope="module")
def three_rates() -> pd.DataFrame:
    return LINKS.build(session(at(r10mbit=SLOW, r1gbit=FAST, none=FAST)))


def test_a_row_a_rate_and_method_in_the_experiments_order(three_rates):
    assert list(three_rates["rate"].unique()) == ["10mbit", "1gbit", "none"]
    assert list(three_rates["method"].head(4)) == ["nocomm", "dense", "dense_bf16", "powersgd"]
    assert set(three_rates["steps"]) == {2 * STEPS}, "warm-up and settling do not count"


def test_exposed_communication_is_what_a_step_takes_beyond_the_floors(three_rates):
    exposed_s = {m: row_of(three_rates, m, "10mbit")["exposed_s"] for m in SLOW}
    assert exposed_s == pytest.approx({"nocomm": 0, "dense": 0.4, "dense_bf16": 0.2, "powersgd": 0.1})
    conditions = LINKS_CONDITIONS.build(session(at(r10mbit=SLOW)))
    assert row_of(conditions, "dense", "10mbit")["exposed_s_min"] == pytest.approx(0.4)


def test_a_floor_has_the_same_optimizer():
    study = session(at(r10mbit=SLOW))
    muon = study.frames.runs["method"] == "powersgd"
    study.frames.runs["spec.training.optimizer"] = muon.map({True: "muon", False: "adamw"})
    table = LINKS.build(study)
    assert math.isnan(row_of(table, "powersgd")["exposed_s"]), "it would have the optimizer's own time, too"
    assert row_of(table, "dense")["exposed_s"] == pytest.approx(0.4)


def test_reductions_are_against_the_baseline_and_the_fastest_dense_method(three_rates):
    row = row_of(three_rates, "powersgd", "10mbit")
    assert (row["baseline"], row["dense"]) == ("Dense", "Dense_Bf16")
    assert row["step_baseline_percent"] == pytest.approx(60)
    assert row["exposed_baseline_percent"] == pytest.approx(75)
    assert row["step_dense_percent"] == pytest.approx(100 / 3)
    assert row["exposed_dense_percent"] == pytest.approx(50)
    floor = row_of(three_rates, "nocomm", "10mbit")
    assert (floor["exposed_dense_percent"], floor["verdict"]) == (100, "floor")


def test_differences_are_taken_within_a_round_so_that_drift_cancels():
    drifting = {m: (value[0], 2 * value[1]) for m, value in SLOW.items()}
    row = row_of(LINKS.build(session(at(r10mbit=drifting))), "powersgd")
    assert row["exposed_s"] == pytest.approx(0.15), "0.1 in one round, 0.2 in the other"
    conditions = LINKS_CONDITIONS.build(session(at(r10mbit=drifting)))
    assert row_of(conditions, "powersgd")["exposed_s_min"] == pytest.approx(0.1)
    assert row["step_dense_percent"] == pytest.approx(100 / 3)
    assert row["step_dense_error"] == pytest.approx(0)


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ((0.2, 0.2), "pays"),
        ((0.4, 0.4), "does not pay"),
        ((0.3, 0.3), "within noise"),
        ((0.15, 0.33), "within noise"),  # 50 % and −10 %: the mean of 20 % is less than the 60 points between them
        ((0.36, 0.45), "does not pay"),  # −20 % and −50 %: −35 % against 30 points
        ((0.2,), "too few rounds"),
    ],
)
def test_verdict_is_against_the_spread_between_rounds(seconds, verdict):
    steady = {"nocomm": (0.1,) * len(seconds), "dense": (0.3,) * len(seconds), "powersgd": seconds}
    row = row_of(LINKS.build(session(at(r10mbit=steady))), "powersgd")
    assert row["verdict"] == verdict
    reductions = [100 * (1 - s / 0.3) for s in seconds]
    if len(seconds) > 1:
        assert row["step_dense_error"] == pytest.approx(abs(reductions[0] - reductions[1]))


def test_more_rounds_tell_a_reduction_more_exactly():
    rounds = (0.24, 0.27, 0.24, 0.27)  # 20 % and 10 % in turn: standard deviation 5.77, twice that over √4
    steady = {"nocomm": (0.1,) * 4, "dense": (0.3,) * 4, "powersgd": rounds}
    table = LINKS.build(session(at(r10mbit=steady)))
    row = row_of(table, "powersgd")
    assert (row["step_dense_percent"], row["step_dense_error"]) == pytest.approx((15, 5.7735))
    assert LINKS.present(table)["Step saved against that"].iloc[-1] == "15.0 % ± 5.8"
    assert row["verdict"] == "pays"


def test_noise_is_never_below_two_errors_of_the_medians():
    rng = np.random.default_rng(0)
    many = pd.DataFrame({"t_step": rng.normal(1.0, 0.1, 40_000), "averaged": 1.0})
    error = 2 * math.sqrt(math.pi / 2) * 0.1 / math.sqrt(len(many))
    assert links._error_points(many, many) == pytest.approx(100 * math.sqrt(2) * error, rel=0.02)
    periods = many.loc[many.index.repeat(4)].assign(averaged=4.0)
    assert links._error_points(periods, periods) == pytest.approx(links._error_points(many, many)), "four are one"


def test_what_exposes_nothing_is_no_reference():
    idle = {"nocomm": (0.1, 0.1), "dense": (0.1, 0.1), "powersgd": (0.2, 0.2)}
    row = row_of(LINKS.build(session(at(none=idle))), "powersgd")
    assert math.isnan(row["exposed_dense_percent"])
    assert row["step_dense_percent"] == pytest.approx(-100)


def test_bytes_are_the_ledgers_and_the_interfaces():
    table = LINKS_BYTES.build(session(at(r10mbit=SLOW)))
    row = row_of(table, "powersgd")
    assert (row["wire_mb"], row["ledger_mb"], row["interface_mb"]) == pytest.approx((1e-4, 1e-4, 2e-4))
    assert row["ledger_share"] == pytest.approx(0.5)
    assert math.isnan(row_of(table, "nocomm")["ledger_share"]), "nothing was charged"
    assert "the ledger has 0.500 times the bytes" in LINKS_BYTES.words(table)
    old = session(at(r10mbit=SLOW))
    old.frames.steps["interface_bytes"] = None
    assert LINKS_BYTES.build(old)["ledger_share"].isna().all()
    assert "could not be held" in LINKS_BYTES.words(LINKS_BYTES.build(old))


def test_nominal_and_achieved_rate_and_others_load_stand_beside_it():
    study = session(at(r10mbit=SLOW, none=FAST), load=0.2, achieved={"10mbit": 1e6})
    table, verdicts = LINKS_CONDITIONS.build(study), LINKS.build(study)
    row = row_of(table, "dense", "10mbit")
    assert (row_of(verdicts, "dense", "10mbit")["nominal_mbit"], row["achieved_mbit"]) == (10, pytest.approx(8))
    assert (row["foreign_load"], row["disturbed"]) == (0.2, True), "the experiment's limit is 0.1"
    assert math.isnan(row_of(table, "dense", "none")["achieved_mbit"])
    assert list(verdicts["disturbed"]) == list(table["disturbed"])


def test_the_three_tables_have_the_same_rows_and_share_no_number():
    study = session(at(r10mbit=SLOW, none=FAST))
    built = [table.build(study) for table in (LINKS, LINKS_BYTES, LINKS_CONDITIONS)]
    identity = ["model", "method", "title", "device", "status", "role", "rate", "steps"]
    for table in built[1:]:
        pd.testing.assert_frame_equal(table[identity], built[0][identity])
    names = [name for table in built for name in table.columns.drop([*identity, "disturbed"], errors="ignore")]
    assert len(names) == len(set(names))


def test_gaps_come_from_the_published_table():
    gaps = published(dense=(0, 0, 3), powersgd=(0.01, 0.005, 3), dense_bf16=(0.01, 0.02, 3))
    table = LINKS.build(session(at(r10mbit=SLOW), gaps=gaps))
    row = row_of(table, "powersgd")
    assert (row["gap"], row["gap_n"], row["preserved"]) == (0.01, 3, True)
    pairs = pd.Series([0.01 - row["gap_sd"], 0.01, 0.01 + row["gap_sd"]])
    assert verdicts.interval(pairs)[2] == pytest.approx(0.015), "its standard deviation follows from the interval"
    assert not row_of(table, "dense_bf16")["preserved"], "the interval straddles the margin"
    assert LINKS.present(table)["Loss gap (nats)"].iloc[0] == "–"


def test_gaps_against_times_have_a_front_on_links_of_each_rate():
    gaps = published(dense=(0, 0, 3), powersgd=(0.01, 0.005, 3), dense_bf16=(0.0, 0.02, 3))
    data = GAP_ON_LINKS.build(session(at(r10mbit=SLOW, none=FAST), gaps=gaps))
    assert list(data["panel"].unique()) == ["10 Mbit/s", "not limited"]
    assert set(data["method"]) == {"dense", "dense_bf16", "powersgd"}, "without the floor, and without unknown gaps"
    slow = data[data["panel"] == "10 Mbit/s"].set_index("method")
    assert slow.loc["powersgd", "seconds"] == pytest.approx(0.2)
    assert slow["front"].to_dict() == {"dense": False, "dense_bf16": True, "powersgd": True}
    assert GAP_ON_LINKS.draw(data[data["panel"] == "10 Mbit/s"])
    assert GAP_ON_LINKS.build(session(at(r10mbit=SLOW))).empty, "nothing is published"


def test_markers_lie_inside_the_axes_however_far_gaps_are_apart():
    gaps = published(dense=(0, 0, 3), powersgd=(0.4, 0.005, 3), dense_bf16=(0.0, 0.02, 3))
    data = GAP_ON_LINKS.build(session(at(r10mbit=SLOW), gaps=gaps))
    assert not beyond(pictures.picture(GAP_ON_LINKS, data, ""), margin=6)


def curve(method: str, *losses: float) -> pd.DataFrame:
    """A published mean curve: these losses after 10, 20 … steps."""
    rows = [
        {"model": "m", "method": method, "title": "older", "device": "elsewhere", "step": 10 * n, "x": 1e9,
         "loss": loss, "low": loss, "high": loss, "n": 3, "diverged": False}
        for n, loss in enumerate(losses, start=1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_published_losses_stand_at_the_times_that_their_steps_take_on_links_of_each_rate():
    timed = session(at(r10mbit=SLOW, none=FAST))
    published_curves = pd.concat([curve("dense", 5.0, 4.0), curve("powersgd", 5.5, 4.5), curve("powersgd", 1, 1)])
    data = LOSS_ON_LINKS.build(replace(timed, curves=published_curves))
    assert set(data["method"]) == {"dense", "powersgd"}, "the others published no losses"
    slow, free = (data[data["panel"] == panel].set_index(["method", "step"]) for panel in ("10 Mbit/s", "not limited"))
    assert slow.loc[("dense", 20), "x"] == pytest.approx(10.0), "20 steps of 0.5 s"
    assert slow.loc[("powersgd", 20), "x"] == pytest.approx(4.0)
    assert slow["loss"].to_dict() == {
        ("dense", 10): 5.0, ("dense", 20): 4.0, ("powersgd", 10): 5.5, ("powersgd", 20): 4.5
    }, "of a method that two experiments published the first counts"  # fmt: skip
    assert slow["front"].to_dict() == {
        ("dense", 10): False, ("dense", 20): True, ("powersgd", 10): True, ("powersgd", 20): True
    }, "after 5 s dense is at 5.0, and PowerSGD has been lower for a second"  # fmt: skip
    assert not free.loc["powersgd", "front"].any(), "it is slower there, and higher"
    assert legend(LOSS_ON_LINKS.draw(data[data["panel"] == "not limited"])) == ["Dense"], "PowerSGD is grey"
    assert LOSS_ON_LINKS.build(timed).empty, "nothing is published"


def test_the_picture_colours_dense_and_the_fastest_methods_that_keep_their_loss():
    columns = {"model": "m", "device": "CPU", "role": "other", "rate": "10mbit", "mbit": 10.0, "steps": 4}
    saved = {"loses": 90.0, "kept_overlap": 60.0, "kept": 50.0} | {f"m{i}": float(i) for i in range(1, LEGEND)}
    table = pd.DataFrame(
        columns | {"method": m, "title": m, "step_dense_percent": s, "verdict": "pays", "dense": "dense", "gap": 0.0}
        for m, s in saved.items()
    ).assign(preserved=lambda rows: rows["method"] != "loses")
    first = exposed.coloured(table)
    assert set(table.loc[first, "method"]) == {"kept_overlap", "m5", "m4", "m3"}, "one of two that differ in overlap"
    data = table.assign(coloured=first, layout="", saved_percent=table["step_dense_percent"], exposed_s=0.1)
    dense = columns | {"method": "d", "title": "D", "role": "dense", "saved_percent": 0.0, "verdict": "fastest dense"}
    data = pd.concat([data, pd.DataFrame([dense | {"exposed_s": 0.2, "coloured": False, "preserved": True}])])
    labels = legend(EXPOSED.draw(data))
    assert set(labels) == {exposed.DENSE, exposed.REST, "kept_overlap", "m5", "m4", "m3"}
    assert len(labels) == LEGEND
    assert exposed.ranges(data, ["saved_percent"])["saved_percent_low"].tolist() == [90.0], "of what may lose"
    unknown = exposed.coloured(table.assign(gap=np.nan, preserved=False))
    assert "loses" in set(table.loc[unknown, "method"]), "no loss was measured: the fastest"


def test_seeds_until_decided_publish_their_deviation_beside_a_wider_interval():
    gaps = published(dense=(0, 0, 5), powersgd=(0.01, 0.009, 5)).assign(gap_sd=0.002)
    row = row_of(LINKS.build(session(at(r10mbit=SLOW), gaps=gaps)), "powersgd")
    assert (row["gap_sd"], row["preserved"]) == (0.002, True)


def test_a_study_reads_the_gaps_that_the_named_experiment_published(tmp_path):
    configs, file = tmp_path / "configs", tmp_path / "configs/experiments/mine.yaml"
    shutil.copytree(CONFIGS, configs)
    plain = "name: mine\nof: links-nano\n"
    session(at(r10mbit=SLOW)).frames.write(tmp_path / "mine/frames")
    file.write_text(plain + "judgement: {gaps_from: [quality, smoke]}\n")
    assert load_study("mine", tmp_path, configs).gaps is None, "nothing is published"
    write_text(tmp_path / "published/smoke/tables/accuracy.csv", published(dense=(0, 0, 3)).to_csv(index=False))
    gaps = load_study("mine", tmp_path, configs).gaps
    assert gaps is not None
    assert list(gaps["method"]) == ["dense"]
    write_text(tmp_path / "published/quality/figures/loss_step.csv", curve("dense", 5.0).to_csv(index=False))
    curves = load_study("mine", tmp_path, configs).curves
    assert curves is not None
    assert list(curves["loss"]) == [5.0]
    write_text(tmp_path / "published/quality/tables/accuracy.csv", published(dense=(1, 0, 4)).to_csv(index=False))
    row = verdicts.published_row("dense", load_study("mine", tmp_path, configs))
    assert row is not None
    assert (row["gap"], row["pairs"]) == (1, 4), "of several the first"
    file.write_text(plain + "judgement: {gaps_from: [nope]}\n")
    with pytest.raises(UserError, match=r"judgement\.gaps_from 'nope': allowed are .*smoke"):
        load_study("mine", tmp_path, configs)


@pytest.mark.parametrize(
    ("rate", "mbit", "text"),
    [("20mbit", 20, "20 Mbit/s"), ("2.5gbit", 2500, "2.5 Gbit/s"), ("500kbit", 0.5, "500 kbit/s")],
)
def test_rates(rate, mbit, text):
    assert sessions.megabits(rate) == mbit
    assert sessions.spoken(rate) == sessions.spoken(mbit) == text
    assert sessions.spoken("none") == "not limited"
    assert sessions.spoken(999.9) == "1 Gbit/s"


# figures and files


def test_what_is_not_above_the_floor_is_drawn_at_the_edge():
    lucky = SLOW | {"powersgd": (0.1, 0.1)}
    data = EXPOSED.build(session(at(r10mbit=lucky, none=FAST)))
    assert set(data["method"]) == {"dense", "dense_bf16", "powersgd"}, "the floor exposes nothing"
    below = EXPOSED.draw(data)[1]
    edges = [layer for layer in below.layers if layer.mark.get("shape") == "triangle-down"]
    lowest = below.layers[0].encoding["y"]["scale"]["domainMin"]
    assert [value for layer in edges for value in layer.rows["ms"]] == [pytest.approx(lowest / 0.9)]


def test_parts_add_up_at_every_rate():
    data = STEP_PARTS_ON_LINKS.build(session(at(r10mbit=SLOW, none=FAST)))
    assert list(data["panel"].unique()) == ["10 Mbit/s", "not limited"]
    assert row_of(data, "dense")["wire"] == pytest.approx(0.5)


@pytest.mark.tier("test")
@pytest.mark.parametrize("what", ["done", pytest.param("failed", marks=pytest.mark.tier("all")), "nothing"])
def test_every_table_and_figure_of_a_session_is_written_whatever_happened(what, tmp_path):
    experiment = load_experiment("links-nano")
    specs = experiment.runs()
    status = {"nocomm": "failed", "powersgd_r8": "failed"} if what == "failed" else {}
    skip = [spec.method.name for spec in specs] if what == "nothing" else ()
    write_session(specs, experiment.timing, tmp_path / "runs", status=status, skip=skip)
    made = Study(experiment, gather(specs, tmp_path / "runs"), tiny_reference([]))
    for name in names(FIGURES, TIME):
        write_figure(name, made, tmp_path)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for name in names(TABLES, TIME):
        write_table(name, made, tmp_path)
        text = (tmp_path / f"{name}.md").read_text()
        assert "2 (1 Gbit/s: 5, not limited: 6) rounds × 15 steps a rate" in text
        table = table_named(name)
        for sentence in table.words(table.build(made)).splitlines():
            assert f"- {sentence}\n" in text


@pytest.mark.parametrize("rounds", [{"r10mbit": {"dense": (0.5, 0.5)}}, {"none": SLOW}, {"r10mbit": SLOW}])
def test_figures_of_one_rate_or_method_are_drawn(rounds):
    study = session(at(**rounds))
    for figure in (EXPOSED, STEP_PARTS_ON_LINKS):
        assert not beyond(pictures.picture(figure, figure.build(study), ""))
