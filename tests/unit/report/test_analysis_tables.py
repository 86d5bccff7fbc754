"""Tables from hand-made frames whose answers are known."""

import math

import numpy as np
import pandas as pd
import pytest

from edgc.report import render, verdicts
from edgc.report.study import WARMUP_STEPS, central, counts, lines
from edgc.report.tables import accuracy
from edgc.report.tables.times import LATENCY, TIME
from tests.fixtures.sessions import row_of
from tests.fixtures.studies import of, run, step, study

FIRST = WARMUP_STEPS + 1


# latency


def test_latency_is_the_median_of_steady_steps_under_each_definition():
    dense, edgc = run("dense"), run("edgc")
    steps = [step(dense, s, wire=0.100, embedding=0.010) for s in range(1, FIRST + 5)]
    steps += [step(edgc, s, payload=20, encode=0.020, wire=0.030, decode=0.010) for s in range(FIRST, FIRST + 4)]
    steps += [step(edgc, 1, payload=20, wire=9.0)]  # warm-up: must not count
    steps += [step(edgc, FIRST + 4, payload=20, encode=0.020, wire=0.050, decode=0.010)]  # an outlier
    row = row_of(LATENCY.build(study([dense, edgc], steps)), "edgc")
    assert row["steps"] == 5
    assert row["wire_s"] == pytest.approx(0.030)
    assert row["exchange_s"] == row["exposed_s"] == pytest.approx(0.060), "nothing overlaps"
    assert row["wire_reduction_percent"] == pytest.approx(70)
    assert row["exchange_reduction_percent"] == pytest.approx(40)
    assert row["everything_reduction_percent"] == pytest.approx(100 * (1 - 0.060 / 0.110))
    assert row["wire_s_p20"] == pytest.approx(0.030)
    assert row["wire_s_p80"] == pytest.approx(0.034)  # a fifth of the way from 0.030 to 0.050


def test_collectives_that_overlap_backward_are_on_the_wire_but_not_exposed():
    steps = [step(run("dense"), FIRST, encode=0.020, wire=0.030, decode=0.010, in_flight=0.090)]
    row = LATENCY.build(study([run("dense")], steps)).iloc[0]
    assert (row["wire_s"], row["exchange_s"], row["exposed_s"]) == pytest.approx((0.090, 0.120, 0.060))


def test_records_without_time_in_flight_have_no_wire_latency():
    old = step(run("dense"), FIRST, wire=0.030) | {"t_in_flight": None}
    row = LATENCY.build(study([run("dense")], [old])).iloc[0]
    assert math.isnan(row["wire_s"])
    assert math.isnan(row["exchange_s"])
    assert row["exposed_s"] == pytest.approx(0.030)


def test_observation_is_other_traffic_and_not_the_methods():
    steps = [step(run("dense"), FIRST) | {"agree_bytes": 1e6, "observe_bytes": 2e6}]
    row = LATENCY.build(study([run("dense")], steps)).iloc[0]
    assert (row["other_mb"], row["wire_mb"], row["payload_mb"]) == pytest.approx((3, 100e-6, 100e-6))


def test_bytes_and_compression():
    dense, topk = run("dense"), run("topk")
    steps = [step(dense, 10), step(topk, 10, payload=10), step(topk, 11, payload=30)]
    row = row_of(LATENCY.build(study([dense, topk], steps)), "topk")
    assert row["payload_mb"] == pytest.approx(20e-6)
    assert row["payload_compression"] == pytest.approx(5)
    assert row["wire_compression"] == pytest.approx(5)
    assert row["compressed_percent"] == 100


def test_a_method_without_runs_is_a_line_and_says_so():
    table = LATENCY.build(study([run("dense"), run("topk", status="not run", device=None)], [step(run("dense"), 9)]))
    assert row_of(table, "topk")["status"] == "not run"
    assert math.isnan(row_of(table, "topk")["wire_s"])
    assert "not run" in render.markdown(LATENCY.present(table))


def test_hardware_is_never_mixed_in_a_line():
    slow, fast = run("dense", 1, device="2 × CPU"), run("dense", 2, device="2 × H100")
    steps = [step(slow, 10, wire=1.0), step(fast, 10, wire=0.1)]
    table = LATENCY.build(study([slow, fast], steps))
    assert dict(zip(table["device"], table["wire_s"], strict=True)) == {"2 × CPU": 1.0, "2 × H100": 0.1}


def test_reductions_need_a_baseline_on_the_same_hardware():
    dense, edgc = run("dense", device="2 × CPU"), run("edgc", device="2 × H100")
    table = LATENCY.build(study([dense, edgc], [step(dense, 10, wire=1.0), step(edgc, 10, wire=0.5)]))
    assert math.isnan(row_of(table, "edgc")["wire_reduction_percent"])


# time


def test_parts_of_a_step_add_up():
    rng = np.random.default_rng(0)
    dense = run("dense")
    steps = [step(dense, s, forward=rng.random(), wire=rng.random(), observe=rng.random()) for s in range(99)]
    s = study([dense], steps)
    row = TIME.build(s).iloc[0]
    inside = central(s.frames.steps[s.frames.steps["step"] > WARMUP_STEPS])
    assert sum(row[f"{part}_s"] for part in ("forward", "wire", "observe")) == pytest.approx(inside["t_step"].mean())
    assert row["step_s_p20"] < row["step_s"] < row["step_s_p80"]


def test_tokens_per_second():
    dense = run("dense")  # 2 sequences of 10 tokens a step
    assert TIME.build(study([dense], [step(dense, 9, wire=0.5)])).iloc[0]["tokens_per_s"] == pytest.approx(40)


def test_saving_is_paired_by_seed_and_leaves_out_unfinished_runs():
    runs = [run("dense", seed, training_seconds=s) for seed, s in ((1, 100), (2, 200))]
    runs += [run("edgc", 1, training_seconds=90), run("edgc", 2, training_seconds=160)]
    runs += [run("topk", 1, training_seconds=50), run("topk", 2, status="diverged", training_seconds=1)]
    table = TIME.build(study(runs))
    assert row_of(table, "edgc")["saving_percent"] == pytest.approx(15)  # mean of 10 and 20
    assert row_of(table, "topk")["saving_percent"] == pytest.approx(50)
    assert row_of(table, "dense")["saving_percent"] == 0


def test_time_to_target_is_the_first_evaluation_that_meets_it_and_inf_when_missed():
    dense, edgc, topk = run("dense", validation_loss=4.0), run("edgc"), run("topk", status="diverged")
    evals = [of(dense, step=1, seconds=10, loss=5.0), of(dense, step=2, seconds=20, loss=4.0)]
    evals += [
        of(edgc, step=1, seconds=7, loss=4.5),
        of(edgc, step=2, seconds=14, loss=4.02),
        of(edgc, step=3, seconds=21, loss=4.0),
    ]
    evals += [of(topk, step=1, seconds=1, loss=4.03)]  # margin 0.02
    table = TIME.build(study([dense, edgc, topk], evals=evals))
    assert row_of(table, "edgc")["to_target_s"] == 14
    assert row_of(table, "dense")["to_target_s"] == 20
    assert row_of(table, "topk")["to_target_s"] == math.inf
    assert row_of(table, "topk")["reached"] == "0/1"
    assert "inf" in render.markdown(TIME.present(table))


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_run_that_ended_badly_misses_the_target_even_if_it_once_met_it(status):
    dense, topk = run("dense", validation_loss=4.0), run("topk", status=status)
    evals = [of(topk, step=1, seconds=1, loss=3.9), of(dense, step=2, seconds=20, loss=4.0)]
    row = row_of(TIME.build(study([dense, topk], evals=evals)), "topk")
    assert (row["to_target_s"], row["reached"]) == (math.inf, "0/1")


# accuracy


def losses(method: str, *values: float, status: str = "done") -> list[dict]:
    return [run(method, seed, status=status, validation_loss=v) for seed, v in enumerate(values, 1)]


def test_gaps_are_paired_by_seed():
    table = accuracy.build(study(losses("dense", 4.0, 5.0, 6.0) + losses("edgc", 4.01, 5.01, 6.01)))
    row = row_of(table, "edgc")
    assert row["loss"] == pytest.approx(5.01)
    assert row["gap"] == pytest.approx(0.01)
    assert row["gap_high"] - row["gap_low"] == pytest.approx(0, abs=1e-9), "seeds differ, pairs do not"
    assert row["verdict"] == "preserved"
    assert row_of(table, "dense")["verdict"] == "baseline"
    assert row["perplexity"] == pytest.approx(np.mean(np.exp([4.01, 5.01, 6.01])))


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([0.010, 0.011, 0.009], "preserved"),
        ([-0.010, -0.011, -0.009], "preserved"),
        ([0.100, 0.101, 0.102], "worse"),
        ([-0.100, -0.101, -0.102], "better"),
        ([0.000, 0.030, 0.015], "too few seeds"),  # the spread straddles the margin
        ([0.001, 0.001], "too few seeds"),
        ([], "too few seeds"),
    ],
)
def test_verdict_follows_margin_and_spread(gaps, verdict):
    assert verdicts.verdict(pd.Series(gaps, dtype=float), margin=0.02) == verdict


def test_confidence_interval_is_students():
    mean, low, high = verdicts.interval(pd.Series([1.0, 2.0, 3.0]))
    assert (mean, high - mean) == (2, pytest.approx(4.302653 / math.sqrt(3)))
    assert mean - low == pytest.approx(high - mean)


def test_bad_ends_and_missing_runs_are_printed():
    runs = losses("dense", 4, 4, 4) + losses("topk", 9, 9, status="diverged") + [run("topk", 3, validation_loss=4.1)]
    runs += [run("edgc", 1, status="not run", device=None)]
    table = accuracy.build(study(runs))
    assert row_of(table, "topk")["verdict"] == "diverged (2 of 3)"
    assert row_of(table, "topk")["loss"] == pytest.approx(4.1), "only runs that finished have a final loss"
    assert row_of(table, "edgc")["verdict"] == "not run"
    text = render.markdown(accuracy.ACCURACY.present(table))
    assert "diverged (2 of 3)" in text
    assert "1 done, 2 diverged" in text


def test_tasks_that_were_not_run_are_never_a_zero():
    dense = run("dense", validation_loss=4)
    results = [of(dense, task="piqa", status="done", value=0.5, stderr=0.05, n=100, chance=0.5)]
    results += [of(dense, task="race", status="not run", value=None, n=0, reason="no data")]
    s = study([dense], zero_shot=results, tasks=["piqa", "race", "mathqa"])
    shown = accuracy.ACCURACY.present(accuracy.build(s)).iloc[0]
    assert shown["piqa (%; chance 50.0)"] == "50.0 ± 5.0 (n = 100)"
    assert shown["race (%)"] == shown["mathqa (%)"] == "not run"


# what tables share


def test_counts_tell_the_seeds():
    assert counts(study([run("dense", 1), run("dense", 2)]).frames.runs) == "n = 2 seeds a method"
    assert counts(study([run("dense", 1), run("dense", 2), run("edgc", 1)]).frames.runs) == "n = 1 to 2 seeds a method"
    assert counts(study([run("dense", status="not run", device=None)]).frames.runs) == "n = 0"


def test_lines_keep_the_experiments_order():
    runs = [run(m, s) for m in ("topk", "dense", "edgc") for s in (1, 2)]
    assert [line.method for line in lines(study(runs).frames.runs)] == ["topk", "dense", "edgc"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1234"),
        (12.345, "12.3"),
        (-1.5, "−1.50"),
        (0.0123, "0.012"),
        (2e-5, "2e−05"),
        (math.inf, "inf"),
    ],
)
def test_cell(value, text):
    assert render.cell(value) == text


def test_cell_without_a_value_is_a_dash():
    assert render.cell(None) == render.cell(math.nan) == render.cell(pd.NA) == "–"


def test_markdown_escapes(tmp_path):
    table = pd.DataFrame({"a": ["x|y", "<b>"], "n": ["1.0", "–"]})
    assert "x\\|y" in render.markdown(table)
    assert render.markdown(table.rename(columns=lambda name: f"{name}|z")).splitlines()[0].count("\\|z") == 2
    assert "| --- | ---: |" in render.markdown(table)
    render.write(tmp_path, "t", "T", table, table, {"a": "caption & more", "n": "number"}, "note", "One.\nTwo.")
    text = (tmp_path / "t.md").read_text()
    assert text.startswith("# T\n\n- One.\n- Two.\n\n| a | n |")
    assert text.endswith("\n\n- **a**: caption & more.\n- **n**: number.\n\nnote\n")
    assert pd.read_csv(tmp_path / "t.csv").shape == (2, 2)
