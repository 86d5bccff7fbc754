"""What bounded the ranks, and loss against a fixed rank's at the same bytes, from records whose answers are known."""

import math
from itertools import chain

import pandas as pd
import pytest

from edgc.report.figures.gradient_entropy import ENTROPY_RANK
from edgc.report.figures.loss_gaps import GAP_BYTES
from edgc.report.render import NOTHING
from edgc.report.tables import ranks
from edgc.report.tables.ranks import CLAMPS, VARIANTS
from tests.fixtures.pictures import legend
from tests.fixtures.sessions import row_of
from tests.fixtures.studies import of, run, step, study

SHARES = [f"share_{clamp}" for clamp in ranks.BOUNDS]
STEPS = range(10, 14)


def decide(r: dict, at: int, *held: str | None, stage: int = 0, **more) -> list[dict]:
    """A window's decisions, a matrix for every clamp."""
    return [of(r, step=at, stage=stage, parameter=str(i), clamp=clamp, **more) for i, clamp in enumerate(held)]


def trained(method: str, losses: list[float], payload: int) -> tuple[list[dict], list[dict]]:
    """A run a seed, and its steps, each of which hands over `payload` bytes (dense: 100)."""
    runs = [run(method, seed, validation_loss=loss) for seed, loss in enumerate(losses, 1)]
    return runs, [step(r, s, payload) for r in runs for s in STEPS]


def a_study(*methods: tuple[list[dict], list[dict]], decisions=()):
    runs, steps = zip(*methods, strict=True)
    return study([*chain(*runs)], [*chain(*steps)], decisions=decisions)


# clamps


def test_shares_are_over_windows_and_add_up_to_one():
    edgc = run("edgc")  # of 40 steps
    decisions = [*decide(edgc, 0, "warmup", "warmup"), *decide(edgc, 10, None, None)]
    decisions += [*decide(edgc, 20, "step", "r_min"), *decide(edgc, 30, "r_min", "r_min")]
    row = CLAMPS.build(study([edgc], decisions=decisions)).iloc[0]
    assert (row["windows"], row["share_warmup"], row["share_free"]) == (4, 0.25, 0.25)
    assert (row["share_r_min"], row["share_step"]) == (3 / 8, 1 / 8)
    assert row[SHARES].sum() == pytest.approx(1)


def test_a_decision_after_the_last_step_was_never_carried_out():
    edgc = run("edgc")
    decisions = [*decide(edgc, 0, "warmup"), *decide(edgc, 20, None, rank=4), *decide(edgc, 40, "r_min", rank=1)]
    row = CLAMPS.build(study([edgc], decisions=decisions)).iloc[0]
    assert (row["windows"], row["share_r_min"], row["rank"], row["low_rank"]) == (2, 0, 4, 4)


def test_a_window_counts_alike_whatever_its_stage_holds():
    edgc = run("edgc")
    decisions = [d for at in (0, 10) for d in decide(edgc, at, "r_min", "r_min", "r_min")]
    decisions += [d for at in (0, 10) for d in decide(edgc, at, "dense", stage=1)]
    made = study([edgc], decisions=decisions)
    table = CLAMPS.build(made)
    assert dict(zip(table["stage"], table["share_dense"], strict=True)) == {0: 0, 1: 1}
    row = row_of(VARIANTS.build(made), "edgc")
    assert (row["share_r_min"], row["share_dense"]) == (0.5, 0.5)


def test_the_error_is_of_the_last_windows_and_the_rank_of_the_compressed_ones():
    edgc = run("edgc")
    decisions = [d for at in (0, 5) for d in decide(edgc, at, "warmup", relative_error=0.9)]
    decisions += [d for at in range(10, 31, 5) for d in decide(edgc, at, None, rank=at, relative_error=0.2)]
    row = CLAMPS.build(study([edgc], decisions=decisions)).iloc[0]
    assert row["relative_error"] == pytest.approx(0.2)
    assert (row["rank"], row["low_rank"], row["high_rank"]) == (20, 10, 30)


@pytest.mark.parametrize(
    ("column", "values", "printed"),
    [("ratio", (0.01, 0.03), "2 % (1–3)"), ("bits", (2, 8), "5.0 bits (2–8)"), ("rank", (2, 8), "5.0 (2–8)")],
)
def test_amounts_that_are_no_ranks_are_shown_as_what_they_are(
    column: str, values: tuple[float, float], printed: str
) -> None:
    adaptive = run("edgc")
    decisions = [d for at, value in enumerate(values) for d in decide(adaptive, 10 * at, None, **{column: value})]
    made = study([adaptive], decisions=decisions)
    assert CLAMPS.present(CLAMPS.build(made))["Rank"].item() == printed
    data = ENTROPY_RANK.build(made)
    assert data["share_dense"].max() == 0
    assert data["rank"].tolist() == pytest.approx([100 * v if column == "ratio" else v for v in values])


def test_a_fixed_rank_has_no_windows():
    fixed = run("powersgd")
    made = study([fixed], decisions=decide(fixed, 0, None, None, rank=4))
    assert CLAMPS.build(made).empty
    row = VARIANTS.build(made).iloc[0]
    assert row[SHARES].isna().all()
    assert ranks.words(row) == NOTHING


def test_shares_in_words_begin_with_the_largest_and_leave_out_what_never_acted():
    row = pd.Series(dict.fromkeys(SHARES, 0.0) | {"share_free": 0.25, "share_r_min": 0.75})
    assert ranks.words(row) == "r_min 75 %, free 25 %"
    edgc = run("edgc")
    decisions = [*decide(edgc, 0, "warmup"), *decide(edgc, 10, "r_min")]
    shown = CLAMPS.present(CLAMPS.build(study([edgc], decisions=decisions)))
    assert {"warm-up", "r_min"} <= set(shown.columns)
    assert not {"r_max", "free", "never pays"} & set(shown.columns)


# loss at equal bytes


@pytest.mark.parametrize(
    ("payload", "gap"),
    [
        (100, 0.4),
        (200, 0.2),
        (100 * math.sqrt(2), 0.3),  # half way in the logarithm
        (400 / math.sqrt(2), 0.15),  # on the next piece
        (400, 0.1),
        (400 * 1.09, 0.1 - 0.1 * math.log2(1.09)),
        (400 * 1.11, math.nan),
        (89, math.nan),
    ],
)
def test_fixed_ranks_gap_is_linear_in_the_logarithm_of_bytes(payload, gap):
    found = ranks.gap_at(payload, {400: 0.1, 100: 0.4, 200: 0.2})
    assert found == pytest.approx(gap, nan_ok=True)


def test_one_fixed_rank_stands_for_itself_and_none_for_nothing():
    assert ranks.gap_at(105, {100: 0.4}) == 0.4
    assert math.isnan(ranks.gap_at(120, {100: 0.4}))
    assert math.isnan(ranks.gap_at(100, {}))


DENSE = trained("dense", [4.0, 5.0, 6.0], 100)
LOW = trained("powersgd_low", [4.4, 5.4, 6.4], 10)
HIGH = trained("powersgd", [4.2, 5.2, 6.2], 20)


def test_a_gap_is_held_against_fixed_ranks_at_the_same_bytes():
    made = a_study(DENSE, HIGH, LOW, trained("edgc", [4.08, 5.1, 6.12], 20))
    row = row_of(VARIANTS.build(made), "edgc")
    assert (row["seeds"], row["gap"], row["gap_sd"]) == pytest.approx((3, 0.1, 0.02))
    assert row["fixed_gap"] == pytest.approx(0.2)
    assert row["relative_gap"] == pytest.approx(0.5)
    assert (row["relative_gap_low"], row["relative_gap_high"]) == pytest.approx((0.4, 0.6))
    assert (row["payload_mb"], row["payload_ratio"], row["wire_ratio"]) == pytest.approx((80e-6, 1, 1))
    assert row["compressed_percent"] == 100
    assert VARIANTS.present(VARIANTS.build(made))["Against fixed rank"].iloc[-1] == "0.50 (0.40 to 0.60)"


def test_fewer_bytes_are_held_against_a_lower_rank():
    made = a_study(DENSE, HIGH, LOW, trained("edgc", [4.3, 5.3, 6.3], 10))
    row = row_of(VARIANTS.build(made), "edgc")
    assert row["relative_gap"] == pytest.approx(0.3 / 0.4)
    assert row["payload_ratio"] == pytest.approx(0.5), "against the first fixed rank"


def test_a_seed_that_sent_more_than_any_fixed_rank_leaves_no_ratio():
    runs, steps = trained("edgc", [4.08, 5.1, 6.12], 20)
    more = [row | {"payload_bytes": 30} if row["seed"] == 3 else row for row in steps]
    assert math.isnan(row_of(VARIANTS.build(a_study(DENSE, HIGH, LOW, (runs, more))), "edgc")["relative_gap"])


def test_neither_the_baseline_nor_a_fixed_rank_is_compared():
    table = VARIANTS.build(a_study(DENSE, HIGH, LOW))
    assert table["relative_gap"].isna().all()
    assert math.isnan(row_of(table, "dense")["gap"])


def test_without_a_fixed_rank_or_a_loss_of_its_own_there_is_no_ratio():
    edgc = trained("edgc", [4.1, 5.1, 6.1], 20)
    assert math.isnan(row_of(VARIANTS.build(a_study(DENSE, edgc)), "edgc")["relative_gap"])
    lucky = trained("powersgd", [3.9, 4.9, 5.9], 20)
    row = row_of(VARIANTS.build(a_study(DENSE, lucky, edgc)), "edgc")
    assert (row["fixed_gap"], math.isnan(row["relative_gap"])) == (pytest.approx(-0.1), True)


def test_runs_that_diverged_are_told_and_not_counted():
    runs, steps = trained("edgc", [4.1, 5.1], 20)
    bad = run("edgc", 3, status="diverged")
    row = row_of(VARIANTS.build(a_study(DENSE, HIGH, ([*runs, bad], [*steps, step(bad, 10, 1)]))), "edgc")
    assert (row["status"], row["seeds"]) == ("2 done, 1 diverged", 2)
    assert row["payload_mb"] == pytest.approx(80e-6)


def test_hardware_is_not_mixed():
    other = run("edgc", device="2 × H100", validation_loss=4.1)
    row = row_of(VARIANTS.build(a_study(DENSE, HIGH, ([other], [step(other, 10, 20)]))), "edgc")
    assert math.isnan(row["gap"])
    assert math.isnan(row["payload_ratio"])


def test_the_figure_has_a_point_a_method_but_the_baseline():
    data = GAP_BYTES.build(a_study(DENSE, HIGH, LOW, trained("edgc", [4.08, 5.1, 6.12], 20)))
    assert dict(zip(data["method"], data["fixed"], strict=True)) == {
        "powersgd": True, "powersgd_low": True, "edgc": False,
    }  # fmt: skip
    row = row_of(data, "edgc")
    assert (row["n"], row["payload"], row["gap"]) == pytest.approx((3, 80, 0.1))
    assert (row["gap_low"], row["gap_high"]) == pytest.approx((0.08, 0.12))
    drawn = GAP_BYTES.draw(data)
    assert legend(drawn) == ["Powersgd", "Powersgd_Low", "Edgc"]
    assert "Dense" in drawn[0].layers[-1].encoding["y"]["title"]
