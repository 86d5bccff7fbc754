"""What is a method's own, from losses whose differences can be computed in the head."""

from dataclasses import replace

import pandas as pd
import pytest

from edgc.report.study import Study
from edgc.report.tables.comparisons import CREDIT, DECISIONS
from tests.fixtures.studies import of, run, study

CONTROLS = {"edgc": "powersgd", "topk": "powersgd"}


def made(**losses: tuple[float, ...]) -> Study:
    """Runs of seeds 1, 2 …; one of `dense` has sent 100 bytes, of `powersgd` 40, of any other 10."""
    sent = {"dense": 100, "powersgd": 40}
    runs = [
        run(method, seed, validation_loss=loss) for method, own in losses.items() for seed, loss in enumerate(own, 1)
    ]
    evals = [
        of(each, step=step, seconds=1, wire_bytes=sent.get(each["run_id"].split("-")[0], 10) * step / 20, loss=5)
        for each in runs
        for step in (10, 20)
    ]
    whole = study(runs, [], evals)
    judgement = whole.experiment.judgement.model_copy(update={"controls": CONTROLS})
    return replace(whole, experiment=whole.experiment.model_copy(update={"judgement": judgement}))


def table(**losses: tuple[float, ...]) -> pd.DataFrame:
    return CREDIT.build(made(**losses)).set_index("method")


def test_a_method_is_held_against_its_control_seed_by_seed() -> None:
    found = table(
        dense=(9.0, 9.0, 9.0), powersgd=(4.0, 5.0, 6.0), edgc=(4.2, 5.3, 6.25), topk=(3.8, 4.7, 5.75)
    )  # fmt: skip
    assert list(found.index) == ["edgc", "topk"], "only those with a control"
    assert found["control"].to_list() == ["Powersgd", "Powersgd"]
    assert found["gap"].round(9).to_list() == [0.25, -0.25]
    assert found["verdict"].to_list() == ["higher loss", "lower loss"], "seeds differ by far more than methods do"
    assert found["bytes_percent"].to_list() == [25.0, 25.0]
    assert CREDIT.words(found.reset_index()).startswith("Edgc against Powersgd: higher loss, +0.2500 (")


def test_two_pairs_or_an_interval_around_zero_tell_nothing_apart() -> None:
    found = table(powersgd=(4.0, 5.0, 6.0), edgc=(4.2, 5.2), topk=(4.5, 4.9, 5.9))
    assert found["pairs"].to_list() == [2, 3]
    assert found["verdict"].to_list() == ["not told apart", "not told apart"]


def test_without_its_control_nothing_is_said() -> None:
    found = CREDIT.build(made(dense=(4.0, 4.0, 4.0), edgc=(4.0, 4.0, 4.0)))
    assert found["control"].isna().all()
    assert CREDIT.words(found) == ""
    assert CREDIT.present(found)["Control"].isna().all()


def decided(run: dict, nats: tuple[float, ...], ranks: tuple[int | None, ...]) -> list[dict]:
    """Decisions after windows of 10 steps, and the one before the first step."""
    windows = [(0, None, None), *((10 * w, *seen) for w, seen in enumerate(zip(nats, ranks, strict=True), 1))]
    return [
        of(run, step=step, window=step // 10, stage=0, parameter=name, entropy=entropy, rank=rank)
        for step, entropy, rank in windows
        for name in "ab"
    ]


def test_decisions_are_held_against_those_of_the_control() -> None:
    runs = [run(method, seed, validation_loss=4.0) for method in ("edgc", "edgc_no_feedback") for seed in (1, 2, 3)]
    own = {"edgc": (None, 8, 6), "edgc_no_feedback": (None, 8, 4)}
    moved = {"edgc": 0.0, "edgc_no_feedback": 0.02}
    rows = [
        row for r in runs for row in decided(r, tuple(x + moved[r["method"]] for x in (-5, -6, -7)), own[r["method"]])
    ]
    evals = [of(each, step=20, seconds=1, wire_bytes=10, loss=4) for each in runs]
    whole = study(runs, [], evals, rows)
    judgement = whole.experiment.judgement.model_copy(update={"controls": {"edgc_no_feedback": "edgc"}})
    whole = replace(whole, experiment=whole.experiment.model_copy(update={"judgement": judgement}))
    found = DECISIONS.build(whole)
    row = found.iloc[0]
    assert (len(found), row["n"], row["layout"], row["stages"]) == (1, 3, "megatron", 1)
    assert row["entropy_off"] == pytest.approx(0.02)
    assert row["rank_off"] == pytest.approx(2 / 3)
    assert row["same_percent"] == pytest.approx(200 / 3)
    assert row["gap"] == 0
    assert DECISIONS.words(found).startswith(
        "Edgc_No_Feedback against Edgc: entropies are off by 0.020 nats, mean ranks are"
    )
    assert DECISIONS.build(made(dense=(4.0, 4.0), edgc=(4.0, 4.0))).empty, "who decided nothing is left out"


def test_a_seed_that_diverged_is_no_verdict_of_the_others() -> None:
    whole = made(powersgd=(4.0, 5.0, 6.0, 7.0), edgc=(3.8, 4.8, 5.8, 6.8))
    runs = whole.frames.runs.copy()
    lost = runs["run_id"] == runs.loc[runs["method"] == "edgc", "run_id"].iloc[-1]
    runs.loc[lost, "status"] = "diverged"
    row = CREDIT.build(replace(whole, frames=replace(whole.frames, runs=runs))).iloc[0]
    assert (row["pairs"], row["verdict"]) == (3, "3 done, 1 diverged")


def test_a_method_of_which_nothing_is_left_sent_nothing_that_could_be_compared() -> None:
    whole = made(powersgd=(4.0, 5.0, 6.0), edgc=(3.8, 4.8, 5.8))
    runs = whole.frames.runs.assign(status=whole.frames.runs["method"].map({"powersgd": "done", "edgc": "diverged"}))
    row = CREDIT.build(replace(whole, frames=replace(whole.frames, runs=runs))).iloc[0]
    assert row["verdict"] == "diverged"
    assert pd.isna(row["bytes_percent"])
