"""Published speeds as questions: each is about the model that was published, and its answer is what arithmetic says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from edgc.core.base.errors import UserError
from edgc.report.at_scale import AtScale, Bandwidth, Speed
from edgc.report.speed_questions import ASKED, SpeedQuestions, answer
from edgc.report.tables.others import FOLDER, OTHERS_PREDICTED
from edgc.suite.cluster.parameters import stage_count
from edgc.suite.config import Model, available, load

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "results" / "published" / FOLDER / "tables" / "others_predicted.csv"
FILES = available(SpeedQuestions)


def numbers(name: str) -> list[Speed | Bandwidth]:
    file = load(AtScale, name)
    return [*file.speeds, *file.bandwidths]


@pytest.mark.parametrize("name", FILES)
def test_every_rule_is_about_some_number_and_every_model_is_as_large_as_the_published_one(name: str) -> None:
    asked = load(SpeedQuestions, name)
    published = [number.model_dump() for number in numbers(name)]
    for rule in asked.rules:
        assert any(all(each.get(k) == v for k, v in rule.to.items()) for each in published), rule.to
    for number in numbers(name):
        if found := asked.setup(number):
            model = Model.model_validate({"name": ASKED} | found[0].model)
            ours = stage_count(model, found[0].vocabulary, 1, 1, 0)
            assert ours == pytest.approx(number.parameters, rel=0.25), number.words
            assert found[1], "say what was assumed"


def test_a_blocking_exchange_needs_the_link_that_its_bytes_say() -> None:
    """Local steps, nothing overlapped: bits / (H · compute · (1/u − 1)) for two sites."""
    name = "diloco-laws-2503.09799"
    number = next(n for n in numbers(name) if isinstance(n, Bandwidth) and n.period == 50 and n.step_s == 0.8)
    found = load(SpeedQuestions, name).setup(number)
    assert found
    model = Model.model_validate({"name": ASKED} | found[0].model)
    bits = 16 * stage_count(model, found[0].vocabulary, 1, 1, 0)
    forecasts, own, _ = answer(found[0])
    for share, gbit in forecasts.by_name(own.name).needs_gbit.items():
        assert gbit == pytest.approx(bits / (50 * 0.8 * (100 / share - 1)) / 1e9, rel=0.02)


def test_compute_from_the_baseline_makes_the_baseline_exact() -> None:
    name = "greedylore-yiran529"
    number = next(n for n in numbers(name) if isinstance(n, Speed) and n.method == "greedylore")
    found = load(SpeedQuestions, name).setup(number)
    assert found
    assert number.dense
    forecasts, _, baseline = answer(found[0], number.dense)
    assert forecasts.by_name(baseline.name).iteration_s == pytest.approx(number.dense, rel=1e-3)
    with pytest.raises(UserError, match="leaves nothing"):
        answer(found[0], 1e-6)


@pytest.mark.tier("test")
def test_the_published_table_is_what_is_predicted_now() -> None:
    """Else run `edgc site speeds`."""
    now, then = OTHERS_PREDICTED.build(None).reset_index(drop=True), pd.read_csv(PUBLISHED)  # type: ignore[arg-type]
    assert list(now["measured"]) == list(then["measured"])
    assert list(now["place"]) == list(then["place"])
    assert list(now["predicted"]) == pytest.approx(list(then["predicted"]), rel=0.01)
