"""What a policy is: how much and when to compress, as a pure function of what was observed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from edgc.core.base.resumable import Resumable
from edgc.core.base.settings import Settings
from edgc.core.policies.amounts import DENSE, Amount, AmountKind
from edgc.core.policies.stage_alignment import ExchangeCost


class PolicySettings(Settings, ABC):
    """Base of every policy's settings; subclasses add `name: Literal[...]` and a description per field."""

    @property
    @abstractmethod
    def decides(self) -> AmountKind:
        """The kind of amount that these settings lead to; `Uncompressed` is always one of them."""

    @property
    @abstractmethod
    def largest(self) -> Amount:
        """The largest amount that it may decide: what an aggregator keeps grows with it. 1 where only timing tells."""

    @property
    def amounts(self) -> Sequence[Amount]:
        """Amounts that it may decide, as far as the settings name them: the aggregator must take each."""
        return (self.largest,)

    #: Whether decisions depend on what is observed.
    adapts: ClassVar[bool] = True
    #: Whether it reads `Observation.spectrum` and `Observation.relative_error`.
    reads_spectrum: ClassVar[bool] = False
    #: Whether it follows `Observation.loss`.
    reads_loss: ClassVar[bool] = False
    #: Whether it reads `Observation.seconds_per_byte`: steps must wait for their own exchange.
    reads_seconds: ClassVar[bool] = False
    #: Whether it reads `Observation.squared_error`: the aggregator must tell it.
    reads_errors: ClassVar[bool] = False

    @property
    def dense_before(self) -> int:
        """0-based step before which all travels dense on all stages, whatever is observed: the option `start_step`."""
        return getattr(self, "start_step", 0)

    @property
    def changes(self) -> Sequence[int]:
        """0-based steps at which decisions change whatever is observed, beside the ends of windows."""
        return (self.dense_before,) if self.dense_before else ()

    @property
    def needs_costs(self) -> bool:
        """Whether the policy needs `Context.costs`: exchanges timed before training."""
        return False

    @property
    def aligned(self) -> bool:
        """Whether all stages follow the first one, which therefore must compress: the option `alignment`."""
        return getattr(self, "alignment", False)


@dataclass(frozen=True)
class Decision:
    """Amounts for the steps to come, on one pipeline stage: `default`, and exceptions by parameter name."""

    default: Amount = DENSE
    by_parameter: Mapping[str, Amount] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for amount in (self.default, *self.by_parameter.values()):
            if not isinstance(amount, Amount):
                raise TypeError(f"{amount!r} is no Amount; say which: Rank, Ratio, Bits, ON or DENSE")

    def amount(self, name: str) -> Amount:
        """The amount of parameter `name`."""
        return self.by_parameter.get(name, self.default)


@dataclass(frozen=True)
class Context:
    """What a policy is told before the first step: its stage's compressible matrices and the run's length."""

    stage: int
    num_stages: int
    iterations: int
    shapes: Mapping[str, tuple[int, ...]]
    lead_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  #: stage 0's compressible matrices
    costs: Sequence[ExchangeCost | None] = ()  #: measured cost of the exchange by stage; empty: not measured
    block: int = 128  #: elements of a factor in few bits that share a scale


@dataclass(frozen=True)
class Observation:
    """One window's measurements on one stage, already equal on all its ranks."""

    step: int  #: last step of the window, 0-based
    entropy: Mapping[str, float] = field(default_factory=dict)  #: nats, window mean by parameter
    relative_error: Mapping[str, float] = field(default_factory=dict)  #: ‖Ē‖/‖M̄‖ at the window's last step
    #: singular values of what the last step sent of M̄, falling, by parameter: as many as its rank
    spectrum: Mapping[str, Sequence[float]] = field(default_factory=dict)
    #: root of the mean square over the window's steps of ‖ḡ‖, the averaged tensor's norm, by parameter
    norm: Mapping[str, float] = field(default_factory=dict)
    #: ‖M‖² of what the last step compressed, and ‖M − C(M)‖² at each of the policy's `candidates`, by parameter
    squared_error: Mapping[str, Sequence[float]] = field(default_factory=dict)
    #: bytes that a rank hands over at each of the `candidates`, by parameter
    payload: Mapping[str, Sequence[int]] = field(default_factory=dict)
    loss: float | None = None  #: training loss, nats a token, window mean
    stage_entropy: Sequence[float | None] = ()  #: nats, mean over a stage's parameters, by stage
    backward_seconds: Sequence[float] = ()  #: backward of a step's last micro-batch by stage, window median
    #: seconds that a byte takes on the wire, window median; None: nothing was timed since the last window
    seconds_per_byte: float | None = None
    rest_seconds: float | None = None  #: of a step without its exchange's wire, window median
    ladder_bytes: Sequence[float] = ()  #: that a rank sends for an exchange at each amount of the policy's `ladder`


@dataclass(frozen=True)
class Sampling:
    """Which steps and elements a policy wants entropy from (EDGC's ISR α and GSR β), and the estimator."""

    every: int  #: iterations between samples
    rate: float  #: share of the elements in a sample
    estimator: Literal["gaussian", "histogram", "histogram_differential"]


class Policy(Resumable, ABC):
    """Observations in, decision out; no torch, no communication, so that a simulator can drive it too.

    Its steps are exchanges: where replicas synchronise every H steps, H training steps are one of its steps. It is
    made by `Policy(settings, context)`, and raises `UserError` there for settings that this run cannot satisfy. What it
    keeps from window to window (`kept`) is such that JSON can hold it.
    """

    Settings: ClassVar[type[PolicySettings]]

    window: int | None = None  #: steps between observations; None: it never wants one
    sampling: Sampling | None = None  #: None: it uses no entropy
    spectrum: bool = False  #: whether it reads `Observation.spectrum`
    norms: bool = False  #: whether it reads `Observation.norm`
    candidates: Sequence[Amount] = ()  #: amounts of `Observation.squared_error` and `payload`; none: it reads neither
    ladder: Sequence[Amount] = ()  #: amounts of `Observation.ladder_bytes`; none: it reads no seconds
    note: str = ""  #: one line for the person who reads the log, e.g. that compression never pays here

    @abstractmethod
    def __init__(self, settings: Any, context: Context) -> None:
        """`settings`: of its own class."""

    @abstractmethod
    def decide(self, step: int) -> Decision:
        """Amounts for 0-based `step`. Pure: the same observations and step give the same answer."""

    @property
    def span(self) -> tuple[Amount, Amount] | None:
        """Smallest and largest amount, beside dense, that observations may make it decide; None: none does."""
        return None

    def observe(self, observation: Observation) -> None:
        """Take in one window."""

    def clamps(self) -> Mapping[str, str | None]:
        """What bounds each parameter's amount, for decisions.jsonl: r_min | r_max | step | warmup | dense (a stage has
        time to send uncompressed) | never_pays | None."""
        return {}
