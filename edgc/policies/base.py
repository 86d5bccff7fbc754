"""What a policy is: how much and when to compress, as a pure function of what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

#: A rank (int ≥ 1), a ratio in (0, 1], or None: travel dense.
Amount = int | float | None


class PolicySettings(BaseModel):
    """Base of every policy's settings; subclasses add `name: Literal[...]` and a description per field."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Decision:
    """Amounts for the steps to come, on one pipeline stage: `default`, and exceptions by parameter name."""

    default: Amount = None
    by_parameter: Mapping[str, Amount] = field(default_factory=dict)

    def amount(self, name: str) -> Amount:
        """The amount of parameter `name`."""
        return self.by_parameter.get(name, self.default)


DENSE = Decision(None)


@dataclass(frozen=True)
class Context:
    """What a policy is told before the first step: its stage's compressible matrices and the run's length."""

    stage: int
    num_stages: int
    iterations: int
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Observation:
    """One window's measurements on one stage, already equal on all its ranks."""

    step: int  #: last step of the window, 0-based
    entropy: Mapping[str, float] = field(default_factory=dict)  #: nats, window mean by parameter
    relative_error: Mapping[str, float] = field(default_factory=dict)  #: ‖Ē‖/‖M̄‖ at the window's last step


@dataclass(frozen=True)
class Sampling:
    """Which steps and elements a policy wants entropy from (EDGC's ISR α and GSR β), and the estimator."""

    every: int  #: iterations between samples
    rate: float  #: share of the elements in a sample
    estimator: Literal["gaussian", "histogram", "histogram_differential"]


class Policy(Protocol):
    """Observations in, decision out; no torch, no communication, so that a simulator can drive it too."""

    window: int | None  #: steps between observations; None: it never wants one
    sampling: Sampling | None  #: None: it uses no entropy

    def observe(self, observation: Observation) -> None:
        """Take in one window."""
        ...

    def decide(self, step: int) -> Decision:
        """Amounts for 0-based `step`. Pure: the same observations and step give the same answer."""
        ...

    def explain(self) -> Mapping[str, Any]:
        """What the last decision rested on, for decisions.jsonl: `entropy`, and `clamp` by parameter
        (r_min | r_max | step | warmup | None)."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
