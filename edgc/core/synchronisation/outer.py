"""Local steps, and every H of them an outer step on what they changed: DiLoCo (arXiv 2311.08105), with any aggregator.

Every replica takes H steps of its own optimizer. Then Δ = mean over replicas of (θ_global − θ_replica), as a gradient,
through the aggregator; outer SGD with Nesterov momentum: v ← μ v + Δ, θ_global ← θ_global − η (Δ + μ v); and all go on
from θ_global. The inner optimizer's state is never synchronised.

Streaming DiLoCo (arXiv 2501.18512) does so with a fragment of the layers at a time. Its Δ leaves τ steps before its
average is used; meanwhile replicas go on: θ_replica ← α θ_replica + (1 − α) θ_global.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.workload import Kernel, Shape, elements, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.settings import younger
from edgc.core.exchange.gradient_exchange import Bucket
from edgc.core.synchronisation.synchronisation import (
    Moment,
    Replica,
    Synchronisation,
    SynchronisationSettings,
    shown,
    spare,
    tensors,
    worst,
)


class OuterSettings(SynchronisationSettings):
    """DiLoCo's settings and its paper's values; μ = 0 and η = 1 is local SGD: parameters are averaged.

    With fragments, each of them is exchanged every H steps, one after the other. All of them are one exchange to a
    policy, whose decision holds for the H steps.
    """

    name: Literal["outer"]
    every: int = Field(500, ge=1, description="H: local steps between two exchanges")
    lr: float = Field(0.7, gt=0, description="η: learning rate of the outer SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="μ: its Nesterov momentum; 0: none")
    scaled_by_lr: bool = younger(
        False,
        description="Exchange η Δ in the place of Δ, as MuLoCo has it with error feedback: η then acts twice",
    )
    fragments: int = younger(
        1,
        ge=1,
        description="P: parts of the model that are exchanged at different steps, each every H: layer i belongs to "
        "part i mod P, what is in no layer (embeddings, last norm) to the first",
    )
    delay: int = younger(
        0,
        ge=0,
        description="τ: local steps in which an exchange is under way; fewer than from one fragment to the next",
    )
    mixing: float = younger(
        0.0,
        ge=0,
        lt=1,
        description="α: share of its own parameters that a replica keeps when it takes over θ_global",
    )
    moment: ClassVar[Moment] = Moment.OPTIMIZER
    local: ClassVar[bool] = True
    no_hook: ClassVar[str] = "changes parameters after the optimizer, and a hook sees gradients only"

    def refusals(self) -> Iterator[str]:
        """One fragment crosses at a time."""
        if self.fragments > self.every:
            yield (
                f"fragments {self.fragments}: only {self.every} steps lie between two exchanges of one (every); use "
                "at most as many fragments"
            )
        between = self.every // self.fragments
        if self.delay >= between:
            yield (
                f"delay {self.delay}: {between} steps lie between the exchanges of two fragments (every / fragments), "
                f"and one is under way at a time; use at most {between - 1}"
            )
        if self.delay and not self.mixing:
            yield (
                f"delay {self.delay} with mixing 0 throws away what a replica learns in the {self.delay} steps of an "
                "exchange; use mixing of more than 0, e.g. 0.5, or delay: 0"
            )

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

    def equal_after(self, step: int, iterations: int) -> bool:
        """With fragments, or if replicas keep a share of their own, after the last step only."""
        streams = self.fragments > 1 or self.delay > 0 or self.mixing > 0
        return step + 1 == iterations or (not streams and self.exchanges_after(step, iterations))

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """Δ; v ← μ v + Δ; θ_global ← θ_global − η (Δ + μ v); the parameters. Late averages are copied."""
        step = [6, 5] if self.momentum else [3]
        scaled, mixed, late = [2] * self.scaled_by_lr, [4 if self.mixing else 2], [2] * bool(self.delay)
        return tuple(memory_passes(elements, times) for times in (3, *step, *scaled, *mixed, *late))

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """θ_global and v; the largest fragment while it is under way."""
        own = (8 if self.momentum else 4) * elements([*shapes.values()])
        if not self.delay:
            return own
        return own + 4 * max(elements([shapes[name] for name in part]) for part in self.parts(shapes))


class Outer(Synchronisation):
    """Δ lies in the gradients' memory, which is free after the optimizer's step; a late one in its own meanwhile.

    First collectives are launched at once. Those that follow on them are launched in the middle of the delay, when a
    step's forward is done.
    """

    Settings = OuterSettings
    settings: OuterSettings
    kept = ("global", "momentum", "late", "worst", "losses")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._global: dict[str, Tensor] = {}  # θ_global
        self._momentum: dict[str, Tensor] = {}  # v, if there is any
        self._late: dict[str, Tensor] = {}  # the fragment whose average is not used yet
        self._under_way: list[Bucket] = []  # its exchange, until it is drained
        self._worst = 0.0  # this rank's largest gradient norm since the last exchange; not finite: infinity
        self._losses: list[Tensor] = []  # since the last end of a period
        self._step = 0

    def begin_step(self, step: int, replica: Replica) -> None:
        if self.restored:
            self.exchange.begin_round(self.round_of(step))
        super().begin_step(step, replica)
        self._step = step
        if not self._global:  # all ranks begin alike
            self._global = {t.name: replica.parameters[t.name].detach().clone() for t in tensors(replica)}
            if self.settings.momentum:
                self._momentum = {name: torch.zeros_like(value) for name, value in self._global.items()}

    def after_optimizer(self, step: int, replica: Replica) -> None:
        """Use what was late until now, and send what is due."""
        if self._late and self._launched(step - self.settings.delay):
            self.drain()
            averages = [t for t in tensors(replica) if t.name in self._late]
            for average in averages:
                average.tensor.copy_(self._late[average.name])
            self._late = {}
            self._outer_step(averages, replica, self.settings.mixing)
        if launched := self._launched(step):
            self._launch(launched, step, replica)

    def _launch(self, fragments: Collection[int], step: int, replica: Replica) -> None:
        """Begin the fragments' exchange. It ends here if there is no delay, or no step in which it could be late."""
        s, last = self.settings, step + 1 == self._iterations
        late = s.delay > 0 and not last
        parts = [[t for t in bucket if s.fragment(t.name) in fragments] for bucket in replica.buckets]
        buckets = [spare(part) if late else part for part in parts if part]
        deltas = [t for bucket in buckets for t in bucket]
        with self.exchange.clock.region("optimizer"):
            for delta in deltas:
                torch.sub(self._global[delta.name], replica.parameters[delta.name], out=delta.tensor)
                if s.scaled_by_lr:
                    delta.tensor.mul_(s.lr)
        self.exchange.begin_round(self.round_of(step + s.delay * late))
        self._under_way = [self.exchange.start(bucket, launch_previous=not late) for bucket in buckets]
        if late:
            self._late = {t.name: t.tensor for t in deltas}
        else:
            self.drain()
            self._outer_step(deltas, replica, 0.0 if last else s.mixing)

    @property
    def note(self) -> str:
        every, rest = self.settings.every, self._iterations % self.settings.every
        if not rest or not self.settings.momentum:
            return super().note
        told = (
            f"synchronisation outer: the last outer step comes after {rest} local steps in place of {every}, and "
            f"momentum moves as far as ever; use iterations that {every} divides"
        )
        return "; ".join(filter(None, (super().note, told)))

    def _outer_step(self, averages: list[NamedTensor], replica: Replica, mixing: float) -> None:
        """Averages lie in the gradients' memory, and are of no use afterwards."""
        if any(replica.stages_of(average.name) > 1 for average in averages):
            replica.tie()
        mu, eta = self.settings.momentum, self.settings.lr
        with self.exchange.clock.region("optimizer"):
            for name, delta in ((average.name, average.tensor) for average in averages):
                if mu:
                    velocity = self._momentum[name].mul_(mu).add_(delta)
                    delta.add_(velocity, alpha=mu)
                theta = self._global[name].sub_(delta, alpha=eta)
                if mixing:
                    replica.parameters[name].mul_(mixing).add_(theta, alpha=1 - mixing)
                else:
                    replica.parameters[name].copy_(theta)
            replica.changed()

    def forward_done(self) -> None:
        middle = 1 + self.settings.delay // 2
        if self._under_way and self._launched(self._step - middle):
            for bucket in self._under_way:
                bucket.advance()

    def agreed_norm(self, step: int, norm: float) -> float:
        """This rank's own between exchanges, however large; with an exchange, the worst of all ranks since the last.

        Ranks that would stop alone would leave the others waiting.
        """
        norm = norm if math.isfinite(norm) else math.inf
        self._worst = max(self._worst, norm)
        if not self._launched(step):
            return min(norm, sys.float_info.max)
        own, self._worst = self._worst, 0.0
        return worst([own], self.exchange.comm, next(iter(self._global.values())).device)[0]

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        """The policy sees the mean loss of the local steps. Its records count training steps."""
        if loss is not None:
            self._losses.append(loss.detach())
        if not self._ends_period(step):
            return []
        mean = torch.stack(self._losses).mean() if self._losses else None
        self._losses = []
        records = self.exchange.end_round(mean)
        return [record | {"step": record["step"] * self.settings.period} for record in records]

    def _launched(self, step: int) -> Collection[int]:
        return self.settings.launched(step, self._iterations)

    def _ends_period(self, step: int) -> bool:
        return (step + 1) % self.settings.period == 0 or step + 1 == self._iterations

    def synchronised(self, replica: Replica) -> AbstractContextManager[None]:
        """θ_global: what the last exchanges left."""
        return shown(lambda: self._global, replica)

    def drain(self) -> None:
        for bucket in self._under_way:
            bucket.wait()
        self._under_way = []
