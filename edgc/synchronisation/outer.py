"""Local steps, and every H of them an outer step on what they changed: DiLoCo (arXiv 2311.08105), with any aggregator.

Every replica takes H steps of its own optimizer. Then Δ = mean over replicas of (θ_global − θ_replica), as a gradient,
through the aggregator; outer SGD with Nesterov momentum: v ← μ v + Δ, θ_global ← θ_global − η (Δ + μ v); and all go on
from θ_global. The inner optimizer's state is never synchronised.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from edgc.aggregators.workload import Kernel, Shape, elements, passes
from edgc.base.lazy import torch
from edgc.comm import ReduceOp
from edgc.exchange.observation import AGREE
from edgc.synchronisation.synchronisation import Moment, Replica, Synchronisation, SynchronisationSettings

if TYPE_CHECKING:
    from torch import Tensor


class OuterSettings(SynchronisationSettings):
    """DiLoCo's settings and its paper's values; μ = 0 and η = 1 is local SGD: parameters are averaged."""

    name: Literal["outer"]
    every: int = Field(500, ge=1, description="H: local steps between two exchanges")
    lr: float = Field(0.7, gt=0, description="η: learning rate of the outer SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="μ: its Nesterov momentum; 0: none")
    moment: ClassVar[Moment] = Moment.OPTIMIZER
    local: ClassVar[bool] = True
    no_hook: ClassVar[str] = "changes parameters after the optimizer, and a hook sees gradients only"

    @property
    def period(self) -> int:
        return self.every

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """Δ; v ← μ v + Δ; θ_global ← θ_global − η (Δ + μ v); the parameters."""
        return passes(elements, 3), passes(elements, 5), passes(elements, 6), passes(elements, 2)

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """θ_global and v."""
        return 8 * elements([*shapes.values()])


class Outer(Synchronisation):
    """Δ lies in the gradients' memory, which is free after the optimizer's step."""

    Settings = OuterSettings
    settings: OuterSettings

    def __init__(self, settings: OuterSettings, exchange: Any, iterations: int) -> None:
        super().__init__(settings, exchange, iterations)
        self._global: dict[str, Tensor] = {}  # θ_global
        self._momentum: dict[str, Tensor] = {}  # v
        self._worst = 0.0  # this rank's largest gradient norm since the last exchange; not finite: infinity
        self._losses: list[Tensor] = []  # since then
        self._restored = False

    def begin_step(self, step: int, replica: Replica) -> None:
        if not self._global:  # all ranks begin alike
            names = [t.name for bucket in replica.buckets for t in bucket]
            self._global = {name: replica.parameters[name].detach().clone() for name in names}
            self._momentum = {name: torch.zeros_like(value) for name, value in self._global.items()}
        elif self._restored:  # a checkpoint is read to the host
            for values in (self._global, self._momentum):
                values |= {name: value.to(replica.parameters[name].device) for name, value in values.items()}
            device = next(iter(self._global.values())).device
            self._losses = [loss.to(device) for loss in self._losses]
        self._restored = False

    def agreed_norm(self, step: int, norm: float) -> float:
        """This rank's own between exchanges, however large; with an exchange, the worst of all ranks since the last.

        Ranks that would stop alone would leave the others waiting.
        """
        norm = norm if math.isfinite(norm) else math.inf
        self._worst = max(self._worst, norm)
        if not self._exchanges(step):
            return min(norm, sys.float_info.max)
        comm = self.exchange.comm
        device = next(iter(self._global.values())).device
        worst = torch.tensor([self._worst], dtype=torch.float64, device=device)
        comm.all_reduce(worst, op=ReduceOp.MAX, tag=AGREE).wait()
        self._worst = 0.0
        return float(worst)

    def after_optimizer(self, step: int, replica: Replica) -> None:
        if not self._exchanges(step):
            return
        clock, deltas = self.exchange.clock, [t for bucket in replica.buckets for t in bucket]
        with clock.region("optimizer"):
            for delta in deltas:
                torch.sub(self._global[delta.name], replica.parameters[delta.name], out=delta.tensor)
        self.exchange.begin_step(self._number(step))
        under_way = [self.exchange.start(bucket) for bucket in replica.buckets]
        for bucket in under_way:
            bucket.wait()
        replica.tie()
        with clock.region("optimizer"):
            for delta in deltas:
                self._outer_step(delta.name, delta.tensor)
                replica.parameters[delta.name].copy_(self._global[delta.name])
            replica.changed()

    def _outer_step(self, name: str, delta: Tensor) -> None:
        mu, eta = self.settings.momentum, self.settings.lr
        velocity = self._momentum[name].mul_(mu).add_(delta)
        self._global[name].sub_(delta.add_(velocity, alpha=mu), alpha=eta)

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        """The policy sees the mean loss of the local steps. Its records count training steps."""
        if loss is not None:
            self._losses.append(loss.detach())
        if not self._exchanges(step):
            return []
        mean = torch.stack(self._losses).mean() if self._losses else None
        self._losses = []
        records = self.exchange.end_step(mean)
        return [record | {"step": record["step"] * self.settings.period} for record in records]

    def _exchanges(self, step: int) -> bool:
        return self.settings.exchanges_after(step, self._iterations)

    def _number(self, step: int) -> int:
        """Which exchange it is that ends this step, from 0."""
        return step // self.settings.period

    @contextmanager
    def synchronised(self, replica: Replica) -> Iterator[None]:
        """θ_global: what the last exchange left."""
        own = {name: replica.parameters[name].detach().clone() for name in self._global}
        try:
            _put(self._global, replica)
            yield
        finally:
            _put(own, replica)

    def state_dict(self) -> dict[str, Any]:
        return {
            "global": dict(self._global),
            "momentum": dict(self._momentum),
            "worst": self._worst,
            "losses": list(self._losses),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._global = {name: value.clone() for name, value in state["global"].items()}
        self._momentum = {name: value.clone() for name, value in state["momentum"].items()}
        self._worst, self._losses = state["worst"], list(state["losses"])
        self._restored = True


def _put(values: Mapping[str, Tensor], replica: Replica) -> None:
    with torch.no_grad():
        for name, value in values.items():
            replica.parameters[name].copy_(value)
        replica.changed()
