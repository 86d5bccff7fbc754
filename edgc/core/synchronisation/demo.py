"""Parameters move by the sign of an average, as in signSGD and in DeMo.

θ ← (1 − η λ) θ − η sign(Q), Q the average of what ranks sent. DeMo's momentum (Peng et al. 2024, arXiv 2411.19870) is
what they did not send, so it is the aggregator's error feedback (edgc/core/aggregators/dct.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.workload import Kernel, memory_passes
from edgc.core.base.lazy import torch
from edgc.core.synchronisation.in_place import InPlace, InPlaceSettings
from edgc.core.synchronisation.synchronisation import Replica, tensors


class SignSettings(InPlaceSettings):
    """How gradients enter what is exchanged."""

    name: Literal["sign"]
    scaled_by_lr: bool = Field(
        True, description="Exchange η G, as DeMo does: what waits keeps the learning rate of its own step; false: G"
    )
    updates: ClassVar[bool] = True
    no_hook: ClassVar[str] = "updates parameters itself, and a hook sees gradients only"

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """η G."""
        return (memory_passes(elements, 2),) if self.scaled_by_lr else ()


class Sign(InPlace):
    """It updates all parameters. Gradients are not clipped: a sign has no size."""

    Settings = SignSettings
    settings: SignSettings

    def begin_step(self, step: int, replica: Replica | None = None) -> None:
        super().begin_step(step, replica)
        self.own = [t.name for t in tensors(self._replica)]

    def prepare(self, gradients: Sequence[NamedTensor]) -> None:
        for t in gradients if self.settings.scaled_by_lr else ():
            t.tensor.mul_(self._replica.lr)

    def update(self, step: int, replica: Replica) -> None:
        with torch.no_grad():
            for t in tensors(replica):
                parameter = replica.parameters[t.name]
                parameter.mul_(1 - replica.lr * replica.weight_decay(t.name))
                parameter.sub_(t.tensor.sign(), alpha=replica.lr)
            replica.changed()
