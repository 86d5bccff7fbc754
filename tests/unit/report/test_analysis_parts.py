"""What a part contributes: differences to the whole method, paired by seed, and words only for what is sure."""

import math
from itertools import chain

import pandas as pd
import pytest

from edgc.report.figures.loss_gaps import PARTS
from edgc.report.study import WARMUP_STEPS
from edgc.report.tables import parts
from tests.fixtures.pictures import legend
from tests.fixtures.studies import run, step, study

FIRST = WARMUP_STEPS + 1


def trained(method: str, losses: list[float], **record) -> tuple[list[dict], list[dict]]:
    """A run a seed, with steady steps that are alike."""
    runs = [run(method, seed, validation_loss=loss) for seed, loss in enumerate(losses, 1)]
    return runs, [made(r, s, **record) for r in runs for s in range(FIRST, FIRST + 4)]


def made(r: dict, number: int, payload: int = 20, first: float = 0.30, last: float = 0.25, **seconds) -> dict:
    return step(r, number, payload, **seconds) | {"t_first_stage_end": first, "t_last_stage_end": last}


def table_of(*methods: tuple[list[dict], list[dict]]) -> pd.DataFrame:
    return parts.build(study_of(*methods)).set_index("method")


def study_of(*methods: tuple[list[dict], list[dict]]):
    runs, steps = zip(*methods, strict=True)
    return study([*chain(*runs)], [*chain(*steps)])


WHOLE = trained("edgc", [4.0, 5.0, 6.0], entropy=0.002, encode=0.01, wire=0.02)


def test_only_the_whole_method_and_its_parts_are_shown():
    table = table_of(trained("dense", [3.9]), WHOLE, trained("edgc_loss", [4.4]), trained("edgc_no_feedback", [4.1]))
    assert list(table.index) == ["edgc", "edgc_no_feedback"]


def test_differences_are_paired_by_seed():
    without = trained("edgc_no_feedback", [4.10, 5.11, 6.09], payload=25, entropy=0.006, encode=0.02, wire=0.03)
    row = table_of(WHOLE, without).loc["edgc_no_feedback"]
    assert (row["pairs"], row["loss_change"]) == (3, pytest.approx(0.1)), "seeds differ more than methods do"
    assert row["loss_change_sd"] == pytest.approx(0.01)
    assert (row["payload_bytes"], row["payload_bytes_change"]) == (100, 20)
    assert (row["entropy_s"], row["entropy_s_change"]) == pytest.approx((0.006, 0.004))
    assert (row["exchange_s"], row["exchange_s_change"]) == pytest.approx((0.05, 0.02))
    assert row["apart_s_change"] == pytest.approx(0)


def test_stage_ends_are_apart_whichever_comes_first():
    early = table_of(trained("edgc", [4.0], first=0.30, last=0.25)).loc["edgc"]
    late = table_of(trained("edgc", [4.0], first=0.25, last=0.30)).loc["edgc"]
    assert early["apart_s"] == pytest.approx(0.05) == late["apart_s"]


def test_steps_that_were_not_compressed_or_not_steady_have_no_exchange_time():
    runs, steps = trained("edgc", [4.0], encode=0.01)
    steps += [made(runs[0], FIRST + 9, payload=100, encode=9.0), made(runs[0], 1, encode=9.0)]
    assert table_of((runs, steps)).loc["edgc", "exchange_s"] == pytest.approx(0.01)


def test_entropy_time_is_a_mean_since_few_steps_sample():
    runs, steps = trained("edgc", [4.0])
    steps += [made(runs[0], FIRST + 9, entropy=0.010)]
    assert table_of((runs, steps)).loc["edgc", "entropy_s"] == pytest.approx(0.002)


def test_the_words_name_what_is_larger_than_the_spread_and_nothing_else():
    without = trained("edgc_no_feedback", [4.10, 5.11, 6.09], payload=20, entropy=0.002, encode=0.01, wire=0.02)
    assert table_of(WHOLE, without).loc["edgc_no_feedback", "contributes"] == "loss +0.1000 nats"


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([4.1, 5.0, 5.9], "no difference beyond the spread over seeds"),
        ([3.5, 4.5, 5.5], "loss −0.5000 nats"),
        ([4.5, 5.5], "too few seeds"),
        ([], "too few seeds"),
    ],
)
def test_words_follow_sign_spread_and_number_of_seeds(losses, words):
    without = trained("edgc_no_feedback", losses, entropy=0.002, encode=0.01, wire=0.02)
    if not losses:
        without = ([run("edgc_no_feedback", status="not run", device=None)], [])
    assert table_of(WHOLE, without).loc["edgc_no_feedback", "contributes"] == words


@pytest.mark.parametrize(("wire", "words"), [(0.024, "no difference beyond"), (0.05, "exchange +30.00 ms")])
def test_a_time_is_told_only_if_it_is_beyond_what_other_work_on_the_machine_does(wire, words):
    without = trained("edgc_no_feedback", [4.0, 5.0, 6.0], entropy=0.002, encode=0.01, wire=wire)
    assert table_of(WHOLE, without).loc["edgc_no_feedback", "contributes"].startswith(words)


def test_the_whole_is_not_judged_by_itself():
    shown = parts.PARTS.present(parts.build(study_of(WHOLE)))
    assert (shown["Gap"].item(), shown["Validation loss"].item()) == ("–", "5.0000")
    assert pd.isna(shown["Without it"].item())


def test_without_the_whole_nothing_is_compared():
    row = table_of(trained("edgc_no_feedback", [4.1, 5.1, 6.1])).loc["edgc_no_feedback"]
    assert (row["contributes"], math.isnan(row["loss_change"])) == ("too few seeds", True)


def test_the_figure_has_a_point_a_part_and_seed():
    made_study = study_of(trained("dense", [3.9]), WHOLE, trained("edgc_no_feedback", [4.1, 5.2, 6.3]))
    data = PARTS.build(made_study)
    assert dict(zip(data["seed"], data["gap"], strict=True)) == pytest.approx({1: 0.1, 2: 0.2, 3: 0.3})
    assert legend(PARTS.draw(data)) == ["Edgc_No_Feedback"]
