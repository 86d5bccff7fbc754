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
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.lazy import torch
from edgc.core.comm import ReduceOp
from edgc.core.exchange.gradient_exchange import Bucket
from edgc.core.exchange.observation import AGREE
from edgc.core.synchronisation.local_steps_settings import OuterSettings
from edgc.core.synchronisation.spare_buffer import copies
from edgc.core.synchronisation.synchronisation import Replica, Synchronisation

if TYPE_CHECKING:
    from torch import Tensor


class Outer(Synchronisation):
    """Δ lies in the gradients' memory, which is free after the optimizer's step; a late one in its own meanwhile.

    First collectives are launched at once. Those that follow on them are launched in the middle of the delay, when a
    step's forward is done.
    """

    Settings = OuterSettings
    settings: OuterSettings

    def __init__(self, settings: OuterSettings, exchange: Any, iterations: int) -> None:
        super().__init__(settings, exchange, iterations)
        self._global: dict[str, Tensor] = {}  # θ_global
        self._momentum: dict[str, Tensor] = {}  # v, if there is any
        self._late: dict[str, Tensor] = {}  # the fragment whose average is not used yet
        self._under_way: list[Bucket] = []  # its exchange, until it is drained
        self._worst = 0.0  # this rank's largest gradient norm since the last exchange; not finite: infinity
        self._losses: list[Tensor] = []  # since the last end of a period
        self._restored = False
        self._step = 0

    def begin_step(self, step: int, replica: Replica) -> None:
        self._step = step
        if not self._global:  # all ranks begin alike
            names = [t.name for bucket in replica.buckets for t in bucket]
            self._global = {name: replica.parameters[name].detach().clone() for name in names}
            if self.settings.momentum:
                self._momentum = {name: torch.zeros_like(value) for name, value in self._global.items()}
        elif self._restored:  # a checkpoint is read to the host
            for values in (self._global, self._momentum, self._late):
                values |= {name: value.to(replica.parameters[name].device) for name, value in values.items()}
            device = next(iter(self._global.values())).device
            self._losses = [loss.to(device) for loss in self._losses]
            self.exchange.begin_step(self._number(step))
        self._restored = False

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
        comm = self.exchange.comm
        device = next(iter(self._global.values())).device
        worst = torch.tensor([self._worst], dtype=torch.float64, device=device)
        comm.all_reduce(worst, op=ReduceOp.MAX, tag=AGREE).wait()
        self._worst = 0.0
        return float(worst)

    def after_optimizer(self, step: int, replica: Replica) -> None:
        if self._late and self._launched(step - self.settings.delay):
            self._use_late(replica)
        if launched := self._launched(step):
            self._launch(launched, step, replica)

    def _launch(self, fragments: Collection[int], step: int, replica: Replica) -> None:
        """Begin the fragments' exchange. It ends here if there is no delay, or no step in which it could be late."""
        s, last = self.settings, step + 1 == self._iterations
        late = s.delay > 0 and not last
        parts = [[t for t in bucket if s.fragment(t.name) in fragments] for bucket in replica.buckets]
        buckets = [copies(part, {}) if late else part for part in parts if part]
        with self.exchange.clock.region("optimizer"):
            for delta in (t for bucket in buckets for t in bucket):
                torch.sub(self._global[delta.name], replica.parameters[delta.name], out=delta.tensor)
                if s.scaled_by_lr:
                    delta.tensor.mul_(s.lr)
        self.exchange.begin_step(self._number(step + s.delay * late))
        self._under_way = [self.exchange.start(bucket, launch_previous=not late) for bucket in buckets]
        if late:
            self._late = {t.name: t.tensor for bucket in buckets for t in bucket}
        else:
            self.drain()
            self._outer_step([t for bucket in buckets for t in bucket], replica, 0.0 if last else s.mixing)

    def _use_late(self, replica: Replica) -> None:
        self.drain()
        averages = [t for bucket in replica.buckets for t in bucket if t.name in self._late]
        for average in averages:
            average.tensor.copy_(self._late[average.name])
        self._late = {}
        self._outer_step(averages, replica, self.settings.mixing)

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

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        """The policy sees the mean loss of the local steps. Its records count training steps."""
        if loss is not None:
            self._losses.append(loss.detach())
        if not self._ends_period(step):
            return []
        mean = torch.stack(self._losses).mean() if self._losses else None
        self._losses = []
        records = self.exchange.end_step(mean)
        return [record | {"step": record["step"] * self.settings.period} for record in records]

    def _launched(self, step: int) -> Collection[int]:
        return self.settings.launched(step, self._iterations)

    def _ends_period(self, step: int) -> bool:
        return (step + 1) % self.settings.period == 0 or step + 1 == self._iterations

    def _number(self, step: int) -> int:
        """Which exchange of the policy's a step belongs to, from 0."""
        return step // self.settings.period

    @contextmanager
    def synchronised(self, replica: Replica) -> Iterator[None]:
        """θ_global: what the last exchanges left."""
        own = {name: replica.parameters[name].detach().clone() for name in self._global}
        try:
            _put(self._global, replica)
            yield
        finally:
            _put(own, replica)

    def drain(self) -> None:
        for bucket in self._under_way:
            bucket.wait()
        self._under_way = []

    def state_dict(self) -> dict[str, Any]:
        self.drain()
        return {
            "global": dict(self._global),
            "momentum": dict(self._momentum),
            "late": dict(self._late),
            "worst": self._worst,
            "losses": list(self._losses),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._global, self._momentum, self._late = (
            {name: value.clone() for name, value in state.get(kind, {}).items()}  # checkpoints before had none late
            for kind in ("global", "momentum", "late")
        )
        self._under_way = []
        self._worst, self._losses = state["worst"], list(state["losses"])
        self._restored = True


def _put(values: Mapping[str, Tensor], replica: Replica) -> None:
    with torch.no_grad():
        for name, value in values.items():
            replica.parameters[name].copy_(value)
        replica.changed()
