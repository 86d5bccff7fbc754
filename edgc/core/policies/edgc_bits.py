"""EDGC's rule on bits: quantisation error stays constant while the gradients' entropy moves. Ours, after 2511.10333.

EDGC holds the absolute error of a rank: g(r₁) = e^{H₀−H₁}·g(r₀). A quantiser with b bits an element leaves a root mean
square error of about ε = c·σ·2^−b, where c depends on the shape of the distribution only: its step is proportional to
σ, and each bit halves it. A Gaussian's entropy H is ln σ plus a constant, so ε stays the same where

    σ₁·2^−b₁ = σ₀·2^−b₀      →      b₁ = b₀ + (H₁ − H₀) / ln 2.

Falling entropy asks for fewer bits, as it asks for a lower rank. b₁ is rounded up to the next width that codes have,
so that by this law no error is above the reference's, and it is not rounded from window to window: it does not drift.

The law needs codes whose step follows σ: `few_bits` with a scale a block, for 2 bits and more; one bit is off it (for
normal data √(1 − 2/π) = .60σ, while Lloyd's 2 bits leave .34σ, and not .30σ). The rule is coarse: entropy must fall by
ln 2 = .69 nats from 2 bits to 1, by 1.39 from 4 to 2, 2.77 from 8 to 4. And it holds the *absolute* error: the relative
one grows while gradients shrink, as with EDGC's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Literal

from pydantic import Field

from edgc.core.policies.amounts import Amount, Bits
from edgc.core.policies.ladder import AmountListSettings
from edgc.core.policies.policy import Context, Decision, Observation, Policy, Sampling
from edgc.core.policies.windowed import STAGE, Estimator, first_compressed


class EdgcBitsSettings(AmountListSettings):
    """GDS as in `edgc`; a reference, and the widths to choose among."""

    name: Literal["edgc_bits"]
    bits: int = Field(8, ge=1, le=32, description="b₀: bits at the reference, the first window after warm-up")
    widths: tuple[int, ...] = Field((1, 2, 4, 8), min_length=1, description="Widths that there are codes of")
    window: int = Field(1000, ge=1, description="w: steps between changes of the bits")
    warmup_fraction: float = Field(
        0.10, ge=0, lt=1, description="Share of the steps before which nothing is compressed"
    )
    alpha: float = Field(0.10, gt=0, le=1, description="α: share of a window's steps whose entropy is sampled")
    beta: float = Field(0.25, gt=0, le=1, description="β: share of a gradient's elements in a sample, at most")
    estimator: Estimator = "gaussian"
    granularity: Literal["stage", "parameter"] = Field(
        "stage", description="The same bits for all of a stage, or for every parameter its own"
    )

    def refusals(self) -> Iterator[str]:
        if list(self.widths) != sorted({*self.widths}) or self.widths[0] < 1:
            yield f"widths {list(self.widths)}: give rising whole numbers from 1"
        if self.bits not in self.widths:
            yield f"bits {self.bits} must be one of widths {list(self.widths)}"
        if self.estimator == "histogram":
            yield "estimator histogram does not see the gradient's scale, which the rule follows"
        if round(1 / self.alpha) > self.window:
            yield f"window {self.window} holds no sample; raise alpha to {1 / self.window:g}"

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """All widths."""
        return tuple(Bits(width) for width in self.widths)


class EdgcBits(Policy):
    """Dense until warm-up ends, then b₀, and from the next window on the bits that hold the error."""

    Settings = EdgcBitsSettings
    kept = ("references", "bits")

    def __init__(self, settings: EdgcBitsSettings, context: Context) -> None:
        self._settings = settings
        self.window = settings.window
        self.sampling = Sampling(round(1 / settings.alpha), settings.beta, settings.estimator)
        names = sorted(context.shapes)
        self._first = first_compressed(settings.window, settings.warmup_fraction, context)  # where the reference is
        self._groups = {name: [name] for name in names} if settings.granularity == "parameter" else {STAGE: names}
        self._references: dict[str, float] = {}  # H₀ by group; empty during warm-up
        self._bits: dict[str, int] = {}

    @property
    def span(self) -> tuple[Amount, Amount]:
        """The fewest and the most bits."""
        return Bits(self._settings.widths[0]), Bits(self._settings.widths[-1])

    def observe(self, observation: Observation) -> None:
        """Take in a window; groups without a finite entropy keep their bits."""
        if observation.step + 1 < self._first:
            return
        for group, names in self._groups.items():
            seen = [observation.entropy[n] for n in names if math.isfinite(observation.entropy.get(n, math.nan))]
            if seen:
                before = self._references.setdefault(group, fmean(seen))
                self._bits[group] = width_for(self._settings.bits, before, fmean(seen), self._settings.widths)

    def decide(self, step: int) -> Decision:
        """Bits by parameter; what was never measured travels dense."""
        return Decision(by_parameter={n: Bits(b) for g, b in self._bits.items() for n in self._groups[g]})

    def clamps(self) -> Mapping[str, str | None]:
        """warmup, or r_min and r_max for the fewest and the most bits."""
        ends = {self._settings.widths[-1]: "r_max", self._settings.widths[0]: "r_min"}
        clamps = {g: ends.get(self._bits[g]) if g in self._bits else "warmup" for g in self._groups}
        return {name: clamps[group] for group, names in self._groups.items() for name in names}


def width_for(bits: int, entropy_before: float, entropy_after: float, widths: tuple[int, ...]) -> int:
    """The fewest of rising `widths` with at least `bits` + (after − before)/ln 2; the most where none has."""
    needed = bits + (entropy_after - entropy_before) / math.log(2)
    return next((width for width in widths if width >= needed - 1e-9), widths[-1])
