"""Settings that EDGC's variants share: windows, warm-up, limits of the rank, sampling of entropy, alignment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgc.core.policies.amounts import AmountKind, Rank
from edgc.core.policies.policy import PolicySettings, Sampling

StepLimit = Annotated[int, Field(ge=1, description="s: largest change of the rank from window to window")]
Estimator = Annotated[
    Literal["gaussian", "histogram", "histogram_differential"],
    Field(
        description="gaussian: ½ ln(2πe σ²); histogram: 1000 bins, blind to the gradient's scale; "
        "histogram_differential: the same + ln(bin width)"
    ),
]


class WindowedSettings(PolicySettings):
    """Window, warm-up and limits of the rank. The paper's defaults where it names one."""

    max_rank: int | None = Field(
        None,
        ge=1,
        description="r_max: highest rank; null: by timing, the rank above which compression does not pay on this link",
    )
    min_rank: int | None = Field(None, ge=1, description="r_min: lowest rank; null: min_rank_share of r_max")
    min_rank_share: float = Field(0.25, gt=0, le=1, description="r_min / r_max where min_rank is null")
    window: int = Field(1000, ge=1, description="w: steps between changes of the rank")
    warmup_fraction: float = Field(
        0.10, ge=0, lt=1, description="Share of the steps before which nothing is compressed"
    )
    stability: float = Field(
        0.02,
        gt=0,
        description="Warm-up lasts until the window's mean (entropy, or loss where that is followed) changes by "
        "less than this, relative to the window before",
    )
    warmup_limit: float = Field(
        0.30, gt=0, le=1, description="Share of the steps after which warm-up ends even if nothing is stable"
    )
    step_limit: StepLimit = 8
    smoothing: float | None = Field(
        None, gt=0, lt=1, description="Weight of the past in a moving average of what is observed; null: none"
    )

    @model_validator(mode="after")
    def _limits_fit(self) -> WindowedSettings:
        if self.min_rank and self.max_rank and self.min_rank > self.max_rank:
            raise ValueError(f"min_rank {self.min_rank} must not exceed max_rank {self.max_rank}")
        if self.warmup_limit < self.warmup_fraction:
            raise ValueError(
                f"warmup_limit {self.warmup_limit} must not be below warmup_fraction {self.warmup_fraction}"
            )
        return self

    def lowest_below(self, highest: int) -> int:
        """r_min where r_max is `highest`."""
        return min(self.min_rank or max(1, int(self.min_rank_share * highest)), highest)

    @property
    def lowest(self) -> int | None:
        """r_min with its default filled in; None: it follows from an r_max that is not known yet."""
        return self.min_rank if self.max_rank is None else self.lowest_below(self.max_rank)

    @property
    def needs_costs(self) -> bool:
        """Without a max_rank, exchanges have to be timed."""
        return self.max_rank is None

    @property
    def sampling(self) -> Sampling | None:
        """What entropy is wanted: none."""
        return None

    @property
    def decides(self) -> AmountKind:
        return Rank

    @property
    def largest(self) -> Rank:
        return Rank(self.max_rank or 1)


class SampledSettings(WindowedSettings):
    """GDS: which steps (α) and elements (β) entropy is estimated from, and how."""

    alpha: float = Field(0.10, gt=0, le=1, description="α: share of a window's steps whose entropy is sampled")
    beta: float = Field(0.25, gt=0, le=1, description="β: share of a gradient's elements in a sample, at most")
    estimator: Estimator = "gaussian"

    @model_validator(mode="after")
    def _window_has_samples(self) -> SampledSettings:
        if self.every > self.window:
            raise ValueError(
                f"window {self.window} holds no sample: with alpha {self.alpha} entropy is sampled every "
                f"{self.every} steps; raise alpha to {1 / self.window:g} or the window to {self.every}"
            )
        return self

    @property
    def every(self) -> int:
        """Steps from one sample of the entropy to the next."""
        return round(1 / self.alpha)

    @property
    def sampling(self) -> Sampling:
        """GDS as these settings have it."""
        return Sampling(self.every, self.beta, self.estimator)


class AlignedSettings(SampledSettings):
    """DAC on or off."""

    alignment: bool = Field(
        False,
        description="DAC: the first stage's entropy decides its rank, and each later stage gets the rank at which "
        "its exchange ends together with the first one's, by timed exchanges and backward passes",
    )

    @property
    def aligned(self) -> bool:
        """Whether all stages follow the first one."""
        return self.alignment

    @property
    def needs_costs(self) -> bool:
        """Alignment rests on timed exchanges too."""
        return super().needs_costs or self.alignment
