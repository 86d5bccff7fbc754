"""Gradients are averaged in every step, before the optimizer: data parallelism as everybody knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.lazy import Tensor
from edgc.core.comm import Work
from edgc.core.synchronisation.synchronisation import Moment, Replica, Synchronisation, SynchronisationSettings


class EveryStepSettings(SynchronisationSettings):
    """No option."""

    name: Literal["every_step"]
    moment: ClassVar[Moment] = Moment.BACKWARD


class EveryStep(Synchronisation):
    """A bucket's exchange starts where backward made it ready, and ends before the optimizer."""

    Settings = EveryStepSettings

    def begin_step(self, step: int, replica: Replica | None = None) -> None:
        """Without a replica, as in a hook, a subclass keeps nothing."""
        if replica is not None:
            super().begin_step(step, replica)
        self.exchange.begin_round(step)

    def bucket(self, gradients: Sequence[NamedTensor]) -> Work:
        return self.exchange.start(gradients)

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        return self.exchange.end_round(loss)
