"""What is a method's own, from losses whose differences can be computed in the head."""

from dataclasses import replace

import pandas as pd

from edgc.report.study import Study
from edgc.report.tables.comparisons import CREDIT
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
