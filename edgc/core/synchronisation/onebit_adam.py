"""1-bit Adam: AdamW, then its momentum is exchanged in the gradients' place and its variance stays as it is.

Tang et al. 2021, arXiv 2102.02888, with any aggregator. Gradients travel dense until the policy compresses
for the first time, and AdamW is as ever. From then on every rank makes m ← β₁ m + (1 − β₁) G with its own gradients, m
is averaged as it is compressed, and θ ← (1 − η λ) θ − η m̂ / (√v̂ + ε) with the variance v of the last dense step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from edgc.core.aggregators.aggregator import AggregatorSettings, NamedTensor
from edgc.core.aggregators.workload import Kernel, memory_passes
from edgc.core.base.lazy import torch
from edgc.core.policies.policy import PolicySettings
from edgc.core.synchronisation.in_place import InPlace, InPlaceSettings
from edgc.core.synchronisation.synchronisation import AdamState, Replica, tensors


class FrozenVarianceSettings(InPlaceSettings):
    """No option: the policy says when, the training section has AdamW's settings."""

    name: Literal["frozen_variance"]
    updates: ClassVar[bool] = True
    reads_adam: ClassVar[bool] = True
    no_hook: ClassVar[str] = "updates parameters itself, and a hook sees gradients only"

    def refuses(self, aggregator: AggregatorSettings, policy: PolicySettings) -> str | None:
        if not policy.dense_before or policy.adapts:
            return (
                "freezes the variance where the policy begins to compress: on all stages at once, and after dense "
                "steps; use policy: {name: fixed, start_step: …} with 15 to 25 % of the steps"
            )
        return None

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """β₁ m + (1 − β₁) G."""
        return (memory_passes(elements, 3),)


class FrozenVariance(InPlace):
    """m and v are AdamW's own: it keeps no tensor.

    Both are corrected for their start at 0, as AdamW's are: v by the steps that made it. Frozen steps do not clip, as
    no rank knows the norm of the average gradient.
    """

    Settings = FrozenVarianceSettings
    kept = ("steps",)
    _steps = 0  # that made v

    def begin_step(self, step: int, replica: Replica | None = None) -> None:
        super().begin_step(step, replica)
        if self.exchange.compressing:
            self.own = [t.name for t in tensors(self._replica)]
        else:
            self._steps = step + 1

    def prepare(self, gradients: Sequence[NamedTensor]) -> None:
        for t in gradients if self.own else ():
            state, stages = self._adam(t.name), self._replica.stages_of(t.name)
            t.tensor.mul_(1 - state.beta1).add_(state.m, alpha=state.beta1 / stages)

    def update(self, step: int, replica: Replica) -> None:
        if not self.own:
            return
        with torch.no_grad():
            for t in tensors(replica):
                state, parameter = self._adam(t.name), replica.parameters[t.name]
                state.m.copy_(t.tensor)
                root = (state.v / (1 - state.beta2**self._steps)).sqrt_().add_(state.eps)
                parameter.mul_(1 - replica.lr * replica.weight_decay(t.name))
                parameter.addcdiv_(state.m, root, value=-replica.lr / (1 - state.beta1 ** (step + 1)))
            replica.changed()

    def _adam(self, name: str) -> AdamState:
        state = self._replica.adam(name)
        assert state is not None, "dense steps come first"
        return state
