"""Table `links` in words: sentences of sessions whose numbers can be computed in the head."""

import pandas as pd
import pytest

from edgc.report.tables.links import LINKS, LINKS_CONDITIONS
from tests.fixtures.sessions import EVEN, FAST, SLOW, at, published, row_of, session


def words(seconds, **more) -> str:
    return LINKS.words(LINKS.build(session(seconds, **more)))


def test_words_name_the_fastest_and_the_control():
    text = words(at(r10mbit=SLOW, none=FAST))
    assert "At 10 Mbit/s Powersgd is fastest with 200 ms a step: 60.0 % less than Dense and 33.3 % less" in text
    assert "On links that are not limited Dense_Bf16, a dense method, is fastest with 110 ms a step: 8.3 % less" in text
    assert (
        "Negative control, on links that are not limited: of the methods that compress in every step, none of 1 pays."
        in text
    )


def test_what_does_not_exchange_in_every_step_is_no_control():
    study = session(at(none=FAST | {"topk": (0.05, 0.05)}))
    study.frames.runs.loc[study.frames.runs["method"] == "topk", "in_every_step"] = False
    text = LINKS.words(LINKS.build(study))
    assert "compress in every step, none of 1 pays. What exchanges less often, or late, may: Topk." in text


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        # 1 − 0.2/0.3 = 1/3 saved at 10 Mbit/s, 1 − 0.22/0.11 = −1 at 1 Gbit/s: zero after a quarter of two decades
        ({"r10mbit": SLOW, "r1gbit": FAST}, "From about 31.6 Mbit/s on nothing pays"),
        ({"r1gbit": FAST, "r10mbit": SLOW}, "From about 31.6 Mbit/s on nothing pays"),
        ({"r10mbit": SLOW, "r100mbit": EVEN, "r1gbit": FAST}, "From about 100 Mbit/s on nothing pays"),
        ({"r10mbit": SLOW}, "A method still pays at 10 Mbit/s, the highest limited rate"),
        ({"r1gbit": FAST, "none": FAST}, "At none of the limited rates (1 Gbit/s) does a method pay"),
        ({"none": FAST}, "No method could be judged on limited links."),
    ],
)
def test_words_tell_the_break_even(rates, told):
    assert told in words(at(**rates))


def test_words_tell_what_keeps_the_loss():
    gaps = published(dense=(0, 0, 3), powersgd=(0.1, 0.005, 3), dense_bf16=(0.0, 0.01, 3))
    assert "these expose least: Dense_Bf16 at 10 Mbit/s (200 ms)." in words(at(r10mbit=SLOW), gaps=gaps)
    assert "known to keep" in words(at(r10mbit=SLOW), gaps=published(powersgd=(0.1, 0.005, 3)))
    assert "gap" not in words(at(r10mbit=SLOW))


def test_words_without_floor_or_dense_or_rounds():
    no_floor = {m: s for m, s in SLOW.items() if m != "nocomm"}
    assert "Exposed communication is unknown" in words(at(r10mbit=no_floor))
    alone = words(at(r10mbit={"nocomm": (0.1, 0.1), "powersgd": (0.2, 0.2)}))
    assert "At 10 Mbit/s Powersgd is fastest with 200 ms a step." in alone
    assert "Powersgd is not judged: no dense method." in alone
    once = {m: s[:1] for m, s in SLOW.items()}
    assert "Powersgd is not judged: too few rounds." in words(at(r10mbit=once))
    nothing = session(at(r10mbit=SLOW))
    nothing.frames.steps["counted"] = False
    assert LINKS.words(LINKS.build(nothing)) == "No step was counted."


def test_methods_that_ended_badly_are_told_and_never_a_reference():
    ended = {"dense_bf16": "failed", "powersgd": "diverged", "topk": "not run"}
    study = session(at(r10mbit=SLOW | {"topk": (0.1, 0.1)}), ended=ended)
    table = LINKS.build(study)
    assert set(table["dense"].dropna()) == {"Dense"}
    assert row_of(table, "topk")["verdict"] == "not run"
    text = LINKS.words(table)
    assert "Powersgd is not judged: diverged." in text
    assert "Without a counted step: Topk." in text
    assert "At 10 Mbit/s Dense, a dense method, is fastest" in text


def test_words_tell_disturbances_and_several_models():
    study = session(at(r10mbit=SLOW), load=0.2)
    told = "Others used more of the machine than allowed in 4 of 4 rows, up to 20.0 %."
    assert LINKS_CONDITIONS.words(LINKS_CONDITIONS.build(study)) == told
    table = LINKS.build(study)
    assert "Others disturbed 4 of 4 rows" in LINKS.words(table)
    both = pd.concat([table, table.assign(model="other")])
    assert "other, 2 × CPU: At 10 Mbit/s" in LINKS.words(both)
