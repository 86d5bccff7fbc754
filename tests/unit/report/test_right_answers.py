"""Zero-shot accuracies beside each other, of answers whose means can be computed in the head."""

import pytest

from edgc.core.base.errors import UserError
from edgc.report.tables.right_answers import ZERO_SHOT
from tests.fixtures.studies import of, run, study

HALF = "10" * 200


def rows(method: str, seed: int, task: str, right: str | None, chance: float | None = 0.25) -> dict:
    answered = {"status": "done", "value": 0.5, "chance": chance, "right": right}
    return of(run(method, seed), task=task, **answered)


def made(*answers: dict):
    runs = [run(method, seed, validation_loss=4) for method in ("dense", "edgc") for seed in (1, 2)]
    return study(runs, zero_shot=answers, tasks=["piqa", "race"])


def test_differences_are_of_the_same_examples_and_seeds():
    """EDGC's answers differ from dense's in one example of four, of one seed, and in no other."""
    own = "11" * 100 + HALF[:200]
    s = made(rows("dense", 1, "piqa", HALF), rows("dense", 2, "piqa", HALF), rows("edgc", 1, "piqa", own),
             rows("edgc", 2, "piqa", HALF), rows("edgc", 3, "piqa", "0" * 400))  # fmt: skip
    table = ZERO_SHOT.build(s).set_index("method")
    assert list(table["task"]) == ["piqa", "piqa"], "race was not asked"
    assert table.loc["dense", ["seeds", "examples", "chance", "accuracy"]].to_list() == [2, 400, 25, 50]
    edgc = table.loc["edgc"]
    assert (edgc["difference"], edgc["pairs"]) == (12.5, 2), "seed 3 has no run of its own, and no partner"
    spread = 1.96 * 25 * (3 / 4 / 4) ** 0.5 * 2 / 400**0.5  # of values that are 50 in a quarter of the examples, else 0
    assert edgc["difference_high"] - edgc["difference_low"] == pytest.approx(2 * spread, rel=0.2)
    assert table.loc["dense"].isna()["difference"]
    said = ZERO_SHOT.words(table.reset_index())
    assert "2 of 2 methods are above chance on piqa (chance 25.0 %)." in said
    assert "1 of 1 differences from the baseline exclude 0, where chance alone gives 0.1; Edgc on piqa +12.5." in said


def test_a_task_at_chance_says_so_and_equal_answers_differ_in_nothing():
    s = made(*(rows(method, 1, "race", HALF, chance=0.5) for method in ("dense", "edgc")))
    table = ZERO_SHOT.build(s)
    said = ZERO_SHOT.words(table)
    assert "No model is above chance on race (chance 50.0 %)." in said
    assert "0 of 1 differences" in said
    assert (
        table.set_index("method").loc["edgc", ["difference", "difference_low", "difference_high"]].to_list() == [0] * 3
    )


def test_records_without_answers_or_a_known_chance_are_left_out():
    s = made(rows("dense", 1, "piqa", None), rows("edgc", 1, "piqa", HALF, chance=None))
    table = ZERO_SHOT.build(s)
    assert table.empty
    assert ZERO_SHOT.present(table).empty
    assert ZERO_SHOT.words(table) == ""


def test_seeds_that_answered_other_examples_are_refused():
    s = made(rows("dense", 1, "piqa", HALF), rows("dense", 2, "piqa", HALF[2:]))
    with pytest.raises(UserError, match="Dense: seeds answered different numbers of examples of piqa"):
        ZERO_SHOT.build(s)
