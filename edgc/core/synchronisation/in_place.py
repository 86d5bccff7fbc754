"""What all synchronisations share that exchange something else in the gradients' place, at the gradients' time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Work
from edgc.core.synchronisation.every_step import EveryStep
from edgc.core.synchronisation.synchronisation import Moment, Replica, SynchronisationSettings


class InPlaceSettings(SynchronisationSettings):
    """Base of their settings."""

    moment: ClassVar[Moment] = Moment.BACKWARD


class InPlace(EveryStep):
    """A subclass says what becomes of a bucket before its exchange, and after it: both in the gradients' memory.

    What it leaves there must be linear in what ranks hold: what two pipeline stages have of a tied parameter is
    summed afterwards. Whatever is not linear belongs into `update`.
    """

    _replica: Replica

    def begin_step(self, step: int, replica: Replica | None = None) -> None:
        super().begin_step(step, replica)
        assert replica is not None, "no hook has this"
        self._replica = replica

    def bucket(self, gradients: Sequence[NamedTensor]) -> Work:
        with self.exchange.clock.region("encode"):
            self.prepare(gradients)
        return self.exchange.start(gradients, then=self._take)

    def _take(self, gradients: Sequence[NamedTensor]) -> None:
        with self.exchange.clock.region("decode"):
            self.take(gradients)

    @abstractmethod
    def prepare(self, gradients: Sequence[NamedTensor]) -> None:
        """This rank's gradients ← what is exchanged."""

    def take(self, gradients: Sequence[NamedTensor]) -> None:
        """The average of what was exchanged ← what the optimizer, or `update`, sees."""


def zeros(memory: dict[str, Tensor], like: NamedTensor) -> Tensor:
    """What is kept under this tensor's name: zeros at first."""
    if like.name not in memory:
        memory[like.name] = torch.zeros_like(like.tensor)
    return memory[like.name]
