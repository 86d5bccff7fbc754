"""What a loss was measured on: a number speaks for its regime, and says how far it is from another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log2
from typing import Any

from edgc.suite.cluster.parameters import stage_count, vocabulary
from edgc.suite.config import RunSpec

#: How a value of an axis is read.
WORDS: dict[str, Callable[[Any], str]] = {
    "parameters": lambda size: f"{count(size)} parameters",
    "tokens_a_parameter": lambda tokens: f"{_short(tokens)} tokens a parameter",
    "steps": lambda steps: f"{steps} steps",
    "replicas": lambda many: f"M = {many}",
    "period": lambda steps: f"H = {steps}",
    "rank_share": lambda share: f"rank {_short(100 * share)} % of the width",
}
AXES = tuple(WORDS)  #: that are compared
UNKNOWN = 6.0  #: doublings between a value and one that a source does not say
REACH = 2.0  #: doublings of an axis up to which a number speaks for another regime
REPLICAS_REACH = 1.0  #: of replicas, of which twice as many lose clearly more (arXiv 2503.09799, Table 4)


@dataclass(frozen=True)
class Regime:
    """Size and length of a training, and what of its exchange the loss depends on. None: not known, or not so."""

    parameters: int | None = None
    tokens_a_parameter: float | None = None
    steps: int | None = None
    batch: int | None = None  #: tokens in a step of all replicas together
    replicas: int | None = None  #: that share a global batch, where that changes the loss: not if every step averages
    period: int | None = None  #: steps from one exchange to the next, the same
    rank_share: float | None = None  #: rank / width of the residual stream

    def distance(self, other: Regime) -> float:
        """In doublings, summed over the axes that this regime has."""
        found = (self._doublings(other, axis) for axis in AXES)
        return sum(UNKNOWN if far is None else far for far in found if far != 0)

    def beyond(self, other: Regime) -> list[str]:
        """Axes on which a number of the other does not speak for this one: they are more than a factor of four apart,
        replicas more than two.

        What is not known does not count.
        """
        reach = dict.fromkeys(AXES, REACH) | {"replicas": REPLICAS_REACH}
        found = {axis: self._doublings(other, axis) for axis in AXES}
        return [axis for axis, far in found.items() if far is not None and far > reach[axis]]

    def _doublings(self, other: Regime, axis: str) -> float | None:
        """None: the other does not say it."""
        mine, theirs = getattr(self, axis), getattr(other, axis)
        return 0.0 if mine is None else None if theirs is None else abs(log2(mine / theirs))

    @property
    def words(self) -> str:
        """As it is read beside a number."""
        return self.said(AXES)

    def said(self, axes: Iterable[str]) -> str:
        """The same, of these axes."""
        return ", ".join(WORDS[axis](value) for axis in axes if (value := getattr(self, axis)))


def regime_of(spec: RunSpec) -> Regime:
    """That of a run, or of what is planned."""
    parameters, policy = stage_count(spec.model, vocabulary(spec), 1, 1, 0), spec.method.policy
    batch, steps = spec.training.global_batch * spec.model.seq_length, spec.training.iterations
    rank: Any = getattr(policy, "rank", None) or getattr(policy, "max_rank", None)
    alone = not spec.method.in_every_step
    period: int = spec.method.synchronisation.period  # type: ignore[attr-defined]
    return Regime(
        parameters, batch * steps / parameters, steps, batch,
        spec.parallel.data if alone else None, period if period > 1 else None, rank and rank / spec.model.hidden_size,
    )  # fmt: skip


def count(number: float | None) -> str:
    """35M, 1.07M, 8.2k."""
    if not number:
        return "–"
    number = float(f"{number:.3g}")  # first: 999 600 reads as 1M
    size, unit = next((each for each in ((1e9, "B"), (1e6, "M"), (1e3, "k")) if number >= each[0]), (1, ""))
    return f"{number / size:.3g}{unit}"


def _short(number: float) -> str:
    """Two significant digits, or all before the point."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"
