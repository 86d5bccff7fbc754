"""Table `choice`: which method to take on links of a rate, from step times and gaps that are told here."""

from dataclasses import replace

import pandas as pd
import pytest

from edgc.report.tables import choice
from edgc.report.tables.choice import DENSE, SEVERAL, SURE
from edgc.report.write import write_table
from tests.fixtures.sessions import published, session

KEPT = {"dense": (0.0, 0.0, 3), "dense_bf16": (0.0, 0.01, 3), "powersgd": (0.01, 0.005, 3)}
LOSES = {"topk": (0.2, 0.1, 3)}


def chosen(steps: dict[str, tuple[float, ...]], gaps: dict[str, tuple[float, float, int]] | None = None) -> pd.Series:
    by_rate = {method: {"10mbit": rounds} for method, rounds in {"nocomm": (0.1, 0.1), **steps}.items()}
    table = choice.build(session(by_rate, gaps=published(**(KEPT | LOSES if gaps is None else gaps))))
    assert len(table) == 1
    return table.iloc[0]


@pytest.mark.parametrize(
    ("steps", "method", "sure"),
    [
        ({"dense": (0.5, 0.5), "powersgd": (0.2, 0.2)}, "powersgd", SURE),
        ({"dense": (0.5, 0.5), "powersgd": (0.2, 0.2), "topk": (0.1, 0.1)}, "powersgd", SURE),  # that one loses
        ({"dense": (0.2, 0.2), "powersgd": (0.5, 0.5)}, "dense", DENSE),
        ({"dense": (0.3, 0.3), "powersgd": (0.25, 0.33)}, "dense", DENSE),  # 3 % against 27 points between rounds
        ({"dense": (0.5, 0.5), "dense_bf16": (0.4, 0.4), "powersgd": (0.2, 0.2), "topk": (0.2, 0.2)}, "powersgd", SURE),
    ],
)
def test_it_is_the_fastest_of_those_that_keep_their_loss(steps, method, sure):
    row = chosen(steps)
    assert (row["method"], row["sure"]) == (method, sure)


def test_others_are_as_fast_within_the_error_over_rounds():
    steps = {"dense": (0.5, 0.5), "powersgd": (0.20, 0.20), "edgc": (0.19, 0.23), "powersgd_low": (0.21, 0.21)}
    row = chosen(steps, KEPT | {"edgc": (0.0, 0.01, 3), "powersgd_low": (0.0, 0.01, 3)})
    assert (row["method"], row["sure"]) == ("powersgd", SEVERAL)
    assert row["as_fast"] == "Edgc", "5 % longer against 20 points; rank 2 is 5 % longer in both rounds"
    assert "As fast within the noise: Edgc." in choice.paragraph(pd.DataFrame([row]))


def test_what_is_faster_at_a_loss_is_named_with_its_loss():
    row = chosen({"dense": (0.5, 0.5), "powersgd": (0.2, 0.2), "topk": (0.15, 0.15)})
    assert (row["faster"], row["faster_gap"], row["faster_percent"]) == ("Topk", 0.2, pytest.approx(25))
    told = choice.paragraph(pd.DataFrame([row]))
    assert told == (
        "At 10 Mbit/s take Powersgd, 200 ms a step: 60.0 % ± 0.0 less than Dense.\n"
        "Topk takes 25.0 % less time a step; its loss gap is +0.200 nats."
    )


def test_a_lower_loss_is_named_with_its_time_where_its_interval_says_so():
    steps = {"dense": (0.5, 0.5), "powersgd": (0.2, 0.2), "topk": (0.25, 0.25), "edgc": (0.3, 0.3)}
    steps |= {"powersgd_low": (0.45, 0.45)}
    row = chosen(steps, KEPT | {"edgc": (-0.3, 0.1, 3), "topk": (-0.4, 0.5, 3), "powersgd_low": (-0.5, 0.1, 3)})
    assert (row["method"], row["lower"]) == ("powersgd", "Edgc"), "Top-K's may be above; rank 2 takes longer"
    assert (row["lower_gap"], row["lower_percent"]) == (-0.3, pytest.approx(-50))
    told = choice.paragraph(pd.DataFrame([row]))
    assert told.endswith("Edgc takes 50.0 % more time a step; its loss gap is −0.300 nats.")
    slow = chosen(steps | {"edgc": (0.5, 0.5)}, KEPT | {"edgc": (-0.3, 0.1, 3)})
    told = choice.paragraph(pd.DataFrame([slow]))
    assert told.endswith("Edgc takes 2.5 times as long a step; its loss gap is −0.300 nats.")


def test_nothing_is_taken_in_the_place_of_dense_whose_loss_is_not_known():
    row = chosen({"dense": (0.5, 0.5), "powersgd": (0.2, 0.2)}, {})
    assert (row["method"], row["sure"], row["faster"]) == ("dense", DENSE, "Powersgd")
    told = choice.paragraph(pd.DataFrame([row]))
    assert "take Dense, 500 ms a step: nothing that is known to keep its loss pays." in told
    assert "Powersgd takes 60.0 % less time a step; its loss gap is unknown." in told


def test_nothing_is_taken_where_nothing_is_dense():
    row = chosen({"powersgd": (0.2, 0.2)})
    assert pd.isna(row["method"])
    table = pd.DataFrame([row])
    assert choice.paragraph(table) == "At 10 Mbit/s nothing was measured that is dense, and nothing pays."
    assert choice.CHOICE.present(table)["Take"].isna().all()


def test_the_table_is_written(tmp_path):
    steps = {"nocomm": {"10mbit": (0.1, 0.1)}, "dense": {"10mbit": (0.5, 0.5)}, "topk": {"10mbit": (0.2, 0.2)}}
    study = session(steps, gaps=published(**KEPT, **LOSES))
    experiment = study.experiment.model_copy(update={"tables": ("choice",)})
    write_table("choice", replace(study, experiment=experiment), tmp_path)
    text = (tmp_path / "choice.md").read_text()
    assert "Topk: 60.0 % less time a step; its loss gap is +0.200 nats" in text


def test_one_round_tells_no_other_apart():
    row = chosen({"dense": (0.5,), "powersgd": (0.2,), "edgc": (0.4,)}, KEPT | {"edgc": (0.0, 0.01, 3)})
    assert (row["method"], row["sure"]) == ("dense", DENSE), "nothing is known to pay"
    assert row["as_fast"].split("; ") == ["Powersgd", "Edgc"]
