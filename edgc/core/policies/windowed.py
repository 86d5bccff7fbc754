"""What EDGC's variants share: windows, warm-up, limits of the rank, and ranks that let all stages end together (DAC).

At the end of every window of w steps a variant sees means of that window:

- *Warm-up*, all dense, ends as the settings say; the signal that is to be stable is the stage's mean entropy, or the
  loss.
- *Then* the rank is r_max, and from the next window on what the variant's own rule says, rounded, clamped to
  [r_min, r_max], and moved by at most s. A window without anything new that is finite changes no rank.
- *r_max by timing*, without `max_rank`, is of exchanges timed before training. A stage where compression never pays
  stays dense, and `note` says so.
- *DAC*, with `alignment`: every stage decides the first stage's rank r_0, from the first stage's entropy and
  shapes, and then computes its own from r_0. The limits, the step limit too, are r_0's; a stage's own rank keeps
  to its own [r_min, r_max] and otherwise moves as far as r_0 makes it, for else the stages would not end together.
  Backward times are the medians over warm-up's windows, so that later ranks do not follow the timings' noise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from statistics import fmean, median
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from edgc.core.base.errors import UserError
from edgc.core.policies.amounts import DENSE, Amount, AmountKind, Rank
from edgc.core.policies.policy import Context, Decision, Observation, Policy, PolicySettings, Sampling
from edgc.core.policies.stage_alignment import ExchangeCost, aligned_rank, paying_rank

Clamp = Literal["r_min", "r_max", "step", "warmup", "dense", "never_pays"]
Shapes = Mapping[str, tuple[int, ...]]
STAGE = "stage"  #: the one group where all of a stage's matrices have the same rank


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

    def refusals(self) -> Iterator[str]:
        if self.min_rank and self.max_rank and self.min_rank > self.max_rank:
            yield f"min_rank {self.min_rank} must not exceed max_rank {self.max_rank}"
        if self.warmup_limit < self.warmup_fraction:
            yield f"warmup_limit {self.warmup_limit} must not be below warmup_fraction {self.warmup_fraction}"

    decides: ClassVar[AmountKind] = Rank

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
    def largest(self) -> Rank:
        return Rank(self.max_rank or 1)


class SampledSettings(WindowedSettings):
    """GDS: which steps (α) and elements (β) entropy is estimated from, and how."""

    alpha: float = Field(0.10, gt=0, le=1, description="α: share of a window's steps whose entropy is sampled")
    beta: float = Field(0.25, gt=0, le=1, description="β: share of a gradient's elements in a sample, at most")
    estimator: Estimator = "gaussian"

    def refusals(self) -> Iterator[str]:
        yield from super().refusals()
        if self.every > self.window:
            yield (
                f"window {self.window} holds no sample: with alpha {self.alpha} entropy is sampled every "
                f"{self.every} steps; raise alpha to {1 / self.window:g} or the window to {self.every}"
            )

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
    def needs_costs(self) -> bool:
        """Alignment rests on timed exchanges too."""
        return super().needs_costs or self.alignment


class Windowed(Policy):
    """A policy with windows and warm-up; a subclass gives the rule.

    Raises `UserError` if the run is too short to ever compress, or if stages should follow one that exchanges
    nothing; `ValueError` if the settings need costs and the context has none.
    """

    even: ClassVar[bool] = False  #: whether ranks are made even
    kept = ("entropy", "signal", "before", "warmed_up", "ranks", "clamps", "backward", "slack")

    def __init__(self, settings: WindowedSettings, context: Context, by_matrix: bool = False) -> None:
        _check(settings, context)
        self._settings, self._context = settings, context
        self.window = settings.window
        self.sampling = settings.sampling
        self.spectrum = settings.reads_spectrum
        names = sorted(context.shapes)
        self._groups = {name: [name] for name in names} if by_matrix or not names else {STAGE: names}
        #: (r_min, r_max) of this stage, and of the stage whose rank is decided; None: it never compresses
        self._own_limits = self._limits_of(context.stage, context.shapes)
        leads = context.stage == 0 or not settings.aligned
        self._limits = self._own_limits if leads else self._limits_of(0, context.lead_shapes)
        self.note = "" if self._own_limits or not names else self._never_pays()
        self._entropy: dict[str, float] = {}  # by parameter, of the last window that had any; smoothed
        self._signal: float | None = None  # what is followed, of the last window that had it: see `_take`
        self._before: float | None = None  # the same of the window before that
        self._warmed_up = False  # whether warm-up is over
        self._ranks: dict[str, int] = {}  # by group; empty during warm-up
        self._clamps: dict[str, Clamp | None] = {}
        self._backward: list[list[float]] = []  # seconds by stage, of warm-up's windows
        self._slack = 0.0  # seconds from the end of this stage's backward to that of the first one's

    def observe(self, observation: Observation) -> None:
        """Take in a window; what is not finite is left out."""
        before, fresh = self._signal, self._take(observation)
        if fresh:
            self._before = before
        if self._warmed_up:
            if fresh and self._ranks:
                self._apply_rule()
            return
        self._backward.append([*observation.backward_seconds])
        if self._warm_up_ends(observation.step + 1, fresh):
            self._warmed_up = True
            self._slack, self._backward = self._slack_seconds(), []
            if self._limits:
                self._begin()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The state may be of a start that timed other exchanges, or had other ranks: what pays now decides."""
        super().load_state_dict(state)
        if not self._limits:
            self._ranks = {}
        elif self._warmed_up and not self._ranks:
            self._begin()

    @property
    def span(self) -> tuple[Amount, Amount] | None:
        """r_min and r_max of this stage."""
        return None if self._own_limits is None else (Rank(self._own_limits[0]), Rank(self._own_limits[1]))

    def decide(self, step: int) -> Decision:
        """One rank per matrix, or dense; changes with observations only."""
        if not self._warmed_up or not self._own_limits:
            return Decision()
        ranks = {group: self._own_rank(group)[0] for group in self._groups}
        amounts = {group: DENSE if rank is None else Rank(rank) for group, rank in ranks.items()}
        return Decision(DENSE, {n: amounts[group] for group, names in self._groups.items() for n in names})

    def clamps(self) -> Mapping[str, str | None]:
        """What bounds the rank of each parameter's group."""
        clamps = {group: self._own_rank(group)[1] for group in self._groups}
        return {name: clamps[group] for group, names in self._groups.items() for name in names}

    def _take(self, observation: Observation) -> bool:
        """Take in entropy, the signal being the stage's mean, or the first stage's; whether anything was new."""
        fresh = {
            name: self._smoothed(self._entropy.get(name), nats)
            for name, nats in observation.entropy.items()
            if name in self._context.shapes and math.isfinite(nats)
        }
        self._entropy |= fresh
        if self._settings.aligned:
            return self._follow(observation.stage_entropy[0] if observation.stage_entropy else None)
        if fresh:
            self._signal = fmean(self._entropy.values())
        return bool(fresh)

    def _follow(self, value: float | None) -> bool:
        """Make `value`, smoothed, the signal; whether there was a finite one."""
        if value is None or not math.isfinite(value):
            return False
        self._signal = self._smoothed(self._signal, value)
        return True

    def _smoothed(self, before: float | None, now: float) -> float:
        past = self._settings.smoothing or 0.0
        return now if before is None else past * before + (1 - past) * now

    @property
    def _change(self) -> float | None:
        """How much the signal changed between its last two windows; None: there were not two."""
        return None if self._signal is None or self._before is None else abs(self._signal - self._before)

    def _warm_up_ends(self, steps: int, fresh: bool) -> bool:
        settings, iterations = self._settings, self._context.iterations
        if steps < steps_of(settings.warmup_fraction, iterations):
            return False
        if steps >= steps_of(settings.warmup_limit, iterations):
            return True
        if not fresh or self._before is None or self._change is None:
            return False
        return self._change < settings.stability * abs(self._before)

    def _begin(self) -> None:
        """The first ranks after warm-up: r_max."""
        for group in self._groups:
            low, high = self._bounds(group)
            self._ranks[group], self._clamps[group] = self._evened(high, low, high), None

    @abstractmethod
    def _apply_rule(self) -> None:
        """The rule: move every group's rank, by `_move`."""

    def _bounds(self, group: str) -> tuple[int, int]:
        """(r_min, r_max) of a group's rank."""
        assert self._limits is not None
        return self._limits

    def _move(self, group: str, target: int) -> None:
        """Bring a group's rank to `target` as far as the limits let it."""
        (low, high), rank, limit = self._bounds(group), self._ranks[group], self._settings.step_limit
        inside = min(max(target, low), high)
        lowest, highest = max(low, rank - limit), min(high, rank + limit)
        reached = min(max(inside, lowest), highest)
        self._ranks[group] = self._evened(reached, lowest, highest)
        self._clamps[group] = (
            "step" if reached != inside else "r_min" if target < low else "r_max" if target > high else None
        )

    def _evened(self, rank: int, low: int, high: int) -> int:
        """`rank`, where ranks are even the next lower even one, or the next higher, if the limits have one."""
        if not self.even or rank % 2 == 0:
            return rank
        return rank - 1 if rank > low else rank + 1 if rank < high else rank

    def _own_rank(self, group: str) -> tuple[int | None, Clamp | None]:
        """This stage's own rank of a group (None: dense), and what bounds it."""
        if not self._own_limits:
            return None, "never_pays"
        if not self._warmed_up:
            return None, "warmup"
        if not self._settings.aligned or self._context.stage == 0:
            return self._ranks[group], self._clamps[group]
        return self._aligned(self._ranks.get(group), self._clamps.get(group))

    def _aligned(self, lead_rank: int | None, lead_clamp: Clamp | None) -> tuple[int | None, Clamp | None]:
        """DAC: this stage's rank from the first one's (None: that one never compresses)."""
        lead, own = self._context.costs[0], self._context.costs[self._context.stage]
        assert lead is not None
        assert own is not None
        assert self._own_limits is not None
        target = self._align(lead_rank, lead, own)
        if target is None:
            return None, "dense"
        low, high = self._own_limits
        rank = self._evened(round(min(max(target, low), high)), low, high)
        return rank, "r_min" if target < low else "r_max" if target > high else lead_clamp

    def _align(self, lead_rank: int | None, lead: ExchangeCost, own: ExchangeCost) -> float | None:
        return aligned_rank(lead_rank, lead, own, self._slack)

    def _slack_seconds(self) -> float:
        """What the stages before this one still need for a micro-batch's backward; 0 for one that was never timed."""
        timed = ([w[j] for w in self._backward if j < len(w)] for j in range(self._context.stage))
        positive = ([s for s in seconds if math.isfinite(s) and s > 0] for seconds in timed)
        return sum(median(seconds) for seconds in positive if seconds)

    def _limits_of(self, stage: int, shapes: Shapes) -> tuple[int, int] | None:
        """(r_min, r_max) of a stage; None where compression never pays, or nothing is exchanged."""
        high = self._settings.max_rank
        if self._settings.needs_costs:
            cost = self._context.costs[stage]
            if cost is None or not shapes:
                return None
            if high is None:
                pays = paying_rank(cost)
                if pays is None:
                    return None
                high = int(min(pays, max(min(shape) for shape in shapes.values())))
        assert high is not None
        return self._settings.lowest_below(high), high

    def _never_pays(self) -> str:
        stage = self._context.stage
        cost = self._context.costs[stage]
        if cost is None:
            return f"stage {stage} exchanges nothing that could be compressed: it stays dense"
        rank, seconds = cost.points[0]
        return (
            f"stage {stage}: compression never pays on this link, it stays dense: an exchange takes "
            f"{1e3 * cost.dense:.3g} ms uncompressed and {1e3 * seconds:.3g} ms at rank {rank}"
        )


def steps_of(share: float, iterations: int) -> float:
    """A share of a run's steps, without what binary numbers add: 0.07·100 is 7.000000000000001 there."""
    return round(share * iterations, 6)


def first_compressed(window: int, warmup_fraction: float, context: Context) -> int:
    """The first step after the windows of warm-up. Raises `UserError` if the run has none."""
    first = window * math.ceil(max(1, steps_of(warmup_fraction, context.iterations)) / window)
    if first >= context.iterations:
        raise UserError(
            f"method.policy.window = {window}: with warmup_fraction {warmup_fraction} nothing is compressed before "
            f"step {first}, but the run has {context.iterations} iterations; make the window or the warm-up shorter, "
            "or the run longer"
        )
    return first


def _check(settings: WindowedSettings, context: Context) -> None:
    first_compressed(settings.window, settings.warmup_fraction, context)
    if not settings.needs_costs:
        return
    if len(context.costs) != context.num_stages:
        raise ValueError(
            f"Context.costs has {len(context.costs)} of {context.num_stages} stages: with max_rank null or alignment "
            "on, exchanges must be timed before the policy is made (edgc/core/exchange/costs.py)"
        )
    if settings.aligned and context.costs[0] is None and any(context.costs):
        raise UserError(
            "method.policy.alignment = true: the first stage has nothing to compress that later ones could be aligned "
            "with; set it to false, or let method.placement include the first stage's matrices"
        )
