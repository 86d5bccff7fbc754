"""Accordion's critical regimes, and EDGC's rule on bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import norm

from edgc.core.base.errors import UserError
from edgc.core.policies.accordion import Accordion, AccordionSettings
from edgc.core.policies.amounts import DENSE, Bits, Rank, plain
from edgc.core.policies.edgc_bits import EdgcBits, EdgcBitsSettings, width_for
from edgc.core.policies.policy import Context, Observation

SHAPES = {"a": (8, 8), "b": (8,)}
CONTEXT = Context(0, 2, 1000, SHAPES)


def accordion(**options: Any) -> Accordion:
    return Accordion(AccordionSettings(name="accordion", window=10, **({"ranks": (4, 16)} | options)), CONTEXT)


def amounts(target: Accordion | EdgcBits, step: int = 500) -> list[Any]:
    return [target.decide(step).amount(name) for name in SHAPES]


def test_a_change_of_the_norm_by_eta_is_critical_up_or_down() -> None:
    target = accordion()
    seen = []
    for a, b in [(1.0, 1.0), (0.6, 1.4), (0.3, 2.8), (0.3, 1.5), (0.45, math.nan), (0.0, 1.5), (1.0, 1.5)]:
        target.observe(Observation(9, norm={"a": a, "b": b}))
        seen.append(amounts(target))
    low, high = Rank(4), Rank(16)
    assert seen == [
        [high, high],  # nothing to compare with
        [low, low],  # by 40 %
        [high, high],  # by exactly half, and to twice as much
        [low, low],  # the same; by 46 %
        [high, low],  # by half; what is not finite changes nothing
        [high, low],  # to nothing; the same as the last finite one
        [high, low],  # from nothing
    ]


def test_dense_before_its_first_step() -> None:
    assert amounts(accordion(start_step=20), 19) == [DENSE, DENSE]
    assert amounts(accordion(start_step=20), 20) == [Rank(16), Rank(16)]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"ranks": None}, "give one of ranks, ratios and bits, not none"),
        ({"bits": (1, 4)}, "not ranks and bits"),
        ({"ranks": (16, 4)}, r"ranks \[16, 4\]: the lower amount comes first"),
        ({"ranks": (4, 4)}, "they must differ"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        accordion(**wrong)


def test_a_run_without_a_window_to_compare_is_refused() -> None:
    with pytest.raises(UserError, match=r"method\.policy\.window = 1000, start_step = 0: the run has 1000 exchanges"):
        Accordion(AccordionSettings(name="accordion", ranks=(1, 2)), CONTEXT)


def edgc_bits(**options: Any) -> EdgcBits:
    chosen = {"window": 10, "alpha": 0.5, "warmup_fraction": 0.02} | options
    return EdgcBits(EdgcBitsSettings(name="edgc_bits", **chosen), CONTEXT)


def bits_after(target: EdgcBits, *entropies: float) -> list[Any]:
    seen = []
    for window, entropy in enumerate(entropies):
        target.observe(Observation(10 * window + 9, entropy={"a": entropy, "b": entropy - 1}))
        seen.append([plain(amount) for amount in amounts(target)])
    return seen


def test_bits_follow_entropy_and_come_back_with_it() -> None:
    fall = math.log(2)
    found = bits_after(edgc_bits(), 9.0, 5.0, 5 - 3.9 * fall, 5 - 4.1 * fall, 5 - 6.5 * fall, 5 - 9 * fall, 5.0, 9.0)
    assert [a for a, _ in found] == [None, 8, 8, 4, 2, 1, 8, 8]
    assert all(a == b for a, b in found), "one for the stage"


def test_every_parameter_can_have_its_own() -> None:
    target = edgc_bits(granularity="parameter", warmup_fraction=0.0)
    target.observe(Observation(9, entropy={"a": 0.0, "b": 0.0}))
    target.observe(Observation(19, entropy={"a": -5.0, "b": math.nan}))
    assert amounts(target) == [Bits(1), Bits(8)]


@settings(max_examples=60)
@given(st.floats(-6, 6), st.floats(-6, 6), st.sampled_from([1, 2, 4, 8]))
def test_the_error_by_its_law_is_never_above_the_references(before: float, after: float, bits: int) -> None:
    """ε = c·e^H·2^−b; and one width fewer would be above it. Unless there is no more, or fewer."""
    widths = (1, 2, 4, 8)
    found = width_for(bits, before, after, widths)
    error, reference = math.exp(after) * 2.0**-found, math.exp(before) * 2.0**-bits
    assert error <= reference * (1 + 1e-6) or found == widths[-1]
    if found > widths[0]:
        fewer = widths[widths.index(found) - 1]
        assert math.exp(after) * 2.0**-fewer > reference * (1 - 1e-6)


def test_the_law_is_that_of_a_uniform_quantiser_of_normal_data() -> None:
    """Each bit halves the error from 2 to 8 bits, within a third: the best uniform step, by quadrature."""
    x = np.linspace(-8, 8, 200_001)
    weight = norm.pdf(x) * (x[1] - x[0])

    def error(bits: int) -> float:
        def of(step: float) -> float:
            level = np.clip(np.floor(x / step) + 0.5, 0.5 - 2 ** (bits - 1), 2 ** (bits - 1) - 0.5) * step
            return float((weight * (x - level) ** 2).sum())

        return math.sqrt(min(of(step) for step in np.geomspace(2.0 / 2**bits, 10.0 / 2**bits, 60)))

    for fewer, more in ((2, 4), (4, 8)):
        a_bit = (error(fewer) / error(more)) ** (1 / (more - fewer))
        assert a_bit == pytest.approx(2, rel=1 / 3)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"bits": 3}, r"bits 3 must be one of widths \[1, 2, 4, 8\]"),
        ({"widths": (8, 4)}, "give rising whole numbers"),
        ({"estimator": "histogram"}, "does not see the gradient's scale"),
        ({"alpha": 0.05}, "holds no sample"),
    ],
)
def test_wrong_bits_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        edgc_bits(**wrong)


def test_a_run_that_ends_with_warm_up_is_refused() -> None:
    with pytest.raises(UserError, match=r"window = 600: with warmup_fraction 0.7 nothing is compressed"):
        edgc_bits(window=600, warmup_fraction=0.7)
