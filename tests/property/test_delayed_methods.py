"""Delayed averages and their corrections against straight-line implementations, in float64.

Four ranks, 25 steps of the small model of `toy_replica`, as in `test_momentum_methods`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from edgc.core.aggregators.draws import draw
from edgc.suite.config import Method
from edgc.tools.laws.toy_replica import SHAPES, gradients, start
from tests.property.test_momentum_methods import LR, RANKS, STEPS, AdamW, Parameters, assert_same, mean, method, trained

Average = Callable[[int, list[Parameters]], Parameters]
#: g of a parameter, where it is now, and where it was when g was taken
Corrected = Callable[[str, Tensor, Tensor, Tensor], Tensor]

MATRICES = ("0.w", "1.v")


def dense(step: int, grads: list[Parameters]) -> Parameters:
    return {n: mean([g[n] for g in grads]) for n in SHAPES}


class PowerSGD:
    """arXiv 1905.13727. Every `streams`th step has the error feedback and the factors of one of so many streams."""

    def __init__(self, rank: int, streams: int) -> None:
        self.streams, like = streams, torch.zeros(0, dtype=torch.float64)
        self.e = [[{n: torch.zeros(SHAPES[n]) for n in ("0.w", "1.v")} for _ in range(RANKS)] for _ in range(streams)]
        self.q = [{n: draw(1, s * STEPS, n, SHAPES[n][1], rank, like) for n in ("0.w", "1.v")} for s in range(streams)]

    def __call__(self, step: int, grads: list[Parameters]) -> Parameters:
        e, q, found = self.e[step % self.streams], self.q[step % self.streams], dense(step, grads)
        for n in MATRICES:
            own = [g[n] + lost[n] for g, lost in zip(grads, e, strict=True)]
            p, _ = torch.linalg.qr(mean([m @ q[n] for m in own]))
            q[n] = mean([m.T @ p for m in own])
            found[n] = p @ q[n].T
            for lost, m in zip(e, own, strict=True):
                lost[n] = m - found[n]
        return found


def as_it_is(n: str, g: Tensor, now: Tensor, then: Tensor) -> Tensor:
    return g


def constant(n: str, g: Tensor, now: Tensor, then: Tensor) -> Tensor:
    """DC-ASGD-c."""
    return g + 0.5 * g * g * (now - then)


class Adaptive:
    """DC-ASGD-a."""

    def __init__(self) -> None:
        self.v: dict[str, Any] = dict.fromkeys(SHAPES, 0.0)

    def __call__(self, n: str, g: Tensor, now: Tensor, then: Tensor) -> Tensor:
        self.v[n] = 0.95 * self.v[n] + 0.05 * g * g
        return g + 2 / (self.v[n] + 1e-7).sqrt() * g * g * (now - then)


def delayed(
    delay: int, average: Average = dense, corrected: Corrected = as_it_is, predicts: bool = False
) -> Iterator[Parameters]:
    theta = {n: value.double() for n, value in start().items()}
    adamw, before = {n: AdamW() for n in SHAPES}, []
    while True:
        at = dict(theta)
        for n, state in adamw.items():
            if predicts and state.t:
                m, v = state.m / (1 - 0.9**state.t), state.v / (1 - 0.999**state.t)
                at[n] = theta[n] - delay * LR * m / (v.sqrt() + 1e-8)
        step = len(before)
        before.append((dict(theta), average(step, [gradients(at, step, rank)[1] for rank in range(RANKS)])))
        if step >= delay:
            then, g = before[step - delay]
            theta = {n: adamw[n].step(theta[n], corrected(n, g[n], theta[n], then[n])) for n in SHAPES}
        yield dict(theta)


LOW = {"policy": {"rank": 3}}
CASES: dict[str, tuple[Method, Callable[[], Iterator[Parameters]]]] = {
    "by one": (method("delayed"), lambda: delayed(1)),
    "by two": (method("delayed_2"), lambda: delayed(2)),
    "powersgd, by one": (method("delayed_powersgd", **LOW), lambda: delayed(1, PowerSGD(3, 1))),
    "powersgd, by two": (
        method("delayed_powersgd", **LOW, synchronisation={"delay": 2}),
        lambda: delayed(2, PowerSGD(3, 2)),
    ),
    "taylor": (
        method("delayed_corrected", synchronisation={"mean_square": None, "strength": 0.5}),
        lambda: delayed(1, corrected=constant),
    ),
    "adaptive taylor, by two": (
        method("delayed_corrected", synchronisation={"delay": 2}),
        lambda: delayed(2, corrected=Adaptive()),
    ),
    "prediction": (method("delayed_predicted"), lambda: delayed(1, predicts=True)),
    "prediction by two, powersgd": (
        method("delayed_powersgd", **LOW, synchronisation={"delay": 2, "correction": "prediction"}),
        lambda: delayed(2, PowerSGD(3, 2), predicts=True),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_it_says(name: str) -> None:
    chosen, reference = CASES[name]
    for step, (ours, theirs) in enumerate(zip(trained(chosen), reference(), strict=False)):
        assert_same(ours, theirs, step)


def test_a_correction_changes_what_is_learnt() -> None:
    """Cases that differ in their correction only are different runs."""
    plain, *others = (trained(CASES[name][0]) for name in ("by one", "taylor", "prediction"))
    for other in others:
        assert all(torch.equal(plain[1][n], other[1][n]) for n in SHAPES), "nothing is late yet"
        assert not torch.allclose(plain[-1]["0.w"], other[-1]["0.w"], rtol=0, atol=1e-6)


def test_two_steps_of_delay_are_refused_where_a_policy_adapts() -> None:
    with pytest.raises(ValidationError, match="delay: 1"):
        method("edgc", synchronisation={"name": "delayed", "delay": 2}, policy={"alignment": False})
