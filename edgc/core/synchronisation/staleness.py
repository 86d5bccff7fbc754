"""What makes up for a gradient's lateness, with averaged quantities only, so that replicas stay equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.lazy import torch
from edgc.core.synchronisation.synchronisation import Replica

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-7  #: added to the mean square, as in arXiv 1609.08326


def _all(replica: Replica) -> list[NamedTensor]:
    return [t for bucket in replica.buckets for t in bucket]


class Taylor:
    """g ← g + λ g ⊙ g ⊙ (θ_now − θ_then): the gradient where the parameters are now (DC-ASGD, arXiv 1609.08326).

    g ⊙ g stands for the Hessian's diagonal. There λ = λ₀ (DC-ASGD-c), or with a mean square v ← m v + (1 − m) g ⊙ g
    λ = λ₀ / √(v + 10⁻⁷) for each element (DC-ASGD-a). There g is one worker's, here it is the average.
    """

    def __init__(self, delay: int, strength: float, mean_square: float | None) -> None:
        """`strength`: λ₀. `mean_square`: m; None: λ is constant."""
        self._delay, self._strength, self._m = delay, strength, mean_square
        self._then: dict[str, Tensor] = {}  # "slot/name": parameters at which the gradients of that slot were taken
        self._square: dict[str, Tensor] = {}  # v, by name

    def begin(self, step: int, replica: Replica) -> None:
        """The gradients of this step are taken where the parameters are."""

    def correct(self, step: int, replica: Replica) -> None:
        """The averages of `delay` steps before, which lie in the gradients' memory, in place.

        What two stages hold of a tied embedding is first summed, as it is not linear; its sum over stages follows.
        """
        late = step >= self._delay
        if late:
            replica.tie()
        for t in _all(replica):
            now, stages = replica.parameters[t.name], replica.stages_of(t.name)
            then = self._kept(self._then, f"{step % self._delay}/{t.name}", now)
            if late:
                gradient = t.tensor.mul_(stages)
                gradient.addcmul_(self._curvature(t.name, gradient), now - then).div_(stages)
            then.copy_(now)

    def _curvature(self, name: str, gradient: Tensor) -> Tensor:
        square = gradient.square()
        if self._m is None:
            return square.mul_(self._strength)
        v = self._kept(self._square, name, torch.zeros_like(square))
        v.mul_(self._m).add_(square, alpha=1 - self._m)
        return square.mul_(self._strength).div_((v + EPSILON).sqrt_())

    @staticmethod
    def _kept(memory: dict[str, Tensor], key: str, first: Tensor) -> Tensor:
        found = memory.get(key)
        memory[key] = first.clone() if found is None else found.to(first.device)  # a checkpoint is read to the host
        return memory[key]

    def state_dict(self) -> dict[str, Any]:
        return {"then": dict(self._then), "square": dict(self._square)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._then = {name: value.clone() for name, value in state["then"].items()}
        self._square = {name: value.clone() for name, value in state["square"].items()}


class Prediction:
    """Gradients are taken where AdamW's moments say that the parameters will be when they are used.

    θ̂ = θ − τ η m̂ / (√v̂ + ε) during forward and backward, θ otherwise: XPipe's prediction for a pipeline's stale
    weights (arXiv 1911.04610, as SpecTrain's for momentum, arXiv 1809.02839), for all of the model at once.
    """

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._exact: dict[str, Tensor] = {}  # θ, while the parameters are θ̂

    def begin(self, step: int, replica: Replica) -> None:
        """θ̂ takes the parameters' place."""
        updates = step - self._delay  # so many the moments have seen
        if updates < 1:
            return
        with torch.no_grad():
            for t in _all(replica):
                state, parameter = replica.adam(t.name), replica.parameters[t.name]
                assert state is not None, "settings refuse other optimizers"
                self._exact[t.name] = parameter.clone()
                root = (state.v / (1 - state.beta2**updates)).sqrt_().add_(state.eps)
                rate = self._delay * replica.lr / (1 - state.beta1**updates)
                parameter.addcdiv_(state.m, root, value=-rate)
            replica.changed()

    def correct(self, step: int, replica: Replica) -> None:
        """The parameters are themselves again."""
        if self._exact:
            with torch.no_grad():
                for name, value in self._exact.items():
                    replica.parameters[name].copy_(value)
                replica.changed()
            self._exact = {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state


class Nothing:
    """Late gradients are used as they are."""

    def begin(self, step: int, replica: Replica) -> None: ...

    def correct(self, step: int, replica: Replica) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state


Correction = Taylor | Prediction | Nothing
