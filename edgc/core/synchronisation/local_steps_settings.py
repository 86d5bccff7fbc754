"""When which part of the parameters is exchanged after local steps, and what becomes of the average. No torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from edgc.core.aggregators.workload import Kernel, Shape, elements, passes
from edgc.core.synchronisation.synchronisation import Moment, SynchronisationSettings


class OuterSettings(SynchronisationSettings):
    """DiLoCo's settings and its paper's values; μ = 0 and η = 1 is local SGD: parameters are averaged.

    With fragments, each of them is exchanged every H steps, one after the other. All of them are one exchange to a
    policy, whose decision holds for the H steps.
    """

    name: Literal["outer"]
    every: int = Field(500, ge=1, description="H: local steps between two exchanges")
    lr: float = Field(0.7, gt=0, description="η: learning rate of the outer SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="μ: its Nesterov momentum; 0: none")
    scaled_by_lr: bool = Field(
        False,
        exclude_if=lambda scaled: not scaled,
        description="Exchange η Δ in the place of Δ, as MuLoCo has it with error feedback: η then acts twice",
    )
    fragments: int = Field(
        1,
        ge=1,
        exclude_if=lambda fragments: fragments == 1,
        description="P: parts of the model that are exchanged at different steps, each every H: layer i belongs to "
        "part i mod P, what is in no layer (embeddings, last norm) to the first",
    )
    delay: int = Field(
        0,
        ge=0,
        exclude_if=lambda delay: delay == 0,
        description="τ: local steps in which an exchange is under way; fewer than from one fragment to the next",
    )
    mixing: float = Field(
        0.0,
        ge=0,
        lt=1,
        exclude_if=lambda mixing: mixing == 0,
        description="α: share of its own parameters that a replica keeps when it takes over θ_global",
    )
    moment: ClassVar[Moment] = Moment.OPTIMIZER
    local: ClassVar[bool] = True
    no_hook: ClassVar[str] = "changes parameters after the optimizer, and a hook sees gradients only"

    @model_validator(mode="after")
    def _one_fragment_crosses_at_a_time(self) -> OuterSettings:
        if self.fragments > self.every:
            raise ValueError(
                f"fragments {self.fragments}: only {self.every} steps lie between two exchanges of one (every); use "
                "at most as many fragments"
            )
        between = self.every // self.fragments
        if self.delay >= between:
            raise ValueError(
                f"delay {self.delay}: {between} steps lie between the exchanges of two fragments (every / fragments), "
                f"and one is under way at a time; use at most {between - 1}"
            )
        if self.delay and not self.mixing:
            raise ValueError(
                f"delay {self.delay} with mixing 0 throws away what a replica learns in the {self.delay} steps of an "
                "exchange; use mixing of more than 0, e.g. 0.5, or delay: 0"
            )
        return self

    @property
    def period(self) -> int:
        return self.every

    @property
    def least_layers(self) -> int:
        """No fragment is empty."""
        return self.fragments

    @property
    def late(self) -> int:
        return self.delay

    def parts(self, names: Collection[str]) -> list[list[str]]:
        """Fragments; of a pipeline stage's parameters there may be fewer."""
        found = [[name for name in names if self.fragment(name) == part] for part in range(self.fragments)]
        return [part for part in found if part]

    def fragment(self, name: str) -> int:
        """The number of the fragment that a parameter belongs to, by the first number in its name."""
        return next((int(part) for part in name.split(".") if part.isdigit()), 0) % self.fragments

    def launched(self, step: int, iterations: int) -> Collection[int]:
        """The fragments whose exchange begins after 0-based `step`: all after the last one, which waits for them."""
        if step + 1 == iterations:
            return range(self.fragments)
        applied = step + self.delay
        if applied + 1 >= iterations:
            return ()
        ends = [(fragment + 1) * self.every // self.fragments for fragment in range(self.fragments)]  # in a period
        return [fragment for fragment, end in enumerate(ends) if (applied + 1 - end) % self.every == 0]

    def exchanges_after(self, step: int, iterations: int) -> bool:
        return bool(self.launched(step, iterations))

    def exchanged(self, step: int, iterations: int, names: Collection[str]) -> Collection[str]:
        launched = self.launched(step, iterations)
        return [name for name in names if self.fragment(name) in launched]

    def equal_after(self, step: int, iterations: int) -> bool:
        """With fragments, or if replicas keep a share of their own, after the last step only."""
        streams = self.fragments > 1 or self.delay > 0 or self.mixing > 0
        return step + 1 == iterations or (not streams and self.exchanges_after(step, iterations))

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """Δ; v ← μ v + Δ; θ_global ← θ_global − η (Δ + μ v); the parameters. Late averages are copied."""
        found = [passes(elements, 3), passes(elements, 6 if self.momentum else 3)]
        found += [passes(elements, 5)] if self.momentum else []
        found += [passes(elements, 2)] if self.scaled_by_lr else []
        return *found, passes(elements, 4 if self.mixing else 2), *([passes(elements, 2)] if self.delay else [])

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """θ_global and v; the largest fragment while it is under way."""
        own = (8 if self.momentum else 4) * elements([*shapes.values()])
        if not self.delay:
            return own
        return own + 4 * max(elements([shapes[name] for name in part]) for part in self.parts(shapes))
