"""A model in plain PyTorch as its synchronisation sees it, and the part of a step that follows backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.synchronisation.synchronisation import AdamState, Synchronisation, Update


class TorchReplica:
    """What torch's optimizers update, whole or sharded: a `Replica`, which drives a synchronisation of itself.

    Gradients lie in one buffer, laid out from the model's end as megatron's is: of sharded ones, this rank's part.

    Args:
        named: what is trained, by name.
        optimizers: hold all of it.
        changed: what to do when parameters were changed in place.
    """

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        optimizers: Sequence[Optimizer],
        changed: Callable[[], None] | None = None,
    ) -> None:
        self.lr = 0.0
        self.named, self.optimizers, self._changed = named, optimizers, changed
        own = {name: local(p) for name, p in named.items()}
        self.parameters: Mapping[str, Tensor] = {name: part for name, part in own.items() if part.numel()}
        sizes = [part.numel() for part in reversed(own.values())]
        first = next(iter(own.values()))
        self.flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        parts = zip(reversed(own.items()), self.flat.split(sizes), strict=True)
        memory = {name: part.view(p.shape) for (name, p), part in parts}
        held = [NamedTensor(name, part) for name, part in memory.items() if name in self.parameters]
        self.buckets: Sequence[Sequence[NamedTensor]] = [held]
        self.gradients = {name: like(memory[name], p) for name, p in named.items()}  #: the buffer, as the model has it
        self._places: dict[int, tuple[Optimizer, dict[str, Any]]] = {}

    def begin_step(self, synchronisation: Synchronisation, step: int) -> None:
        """Before the first forward of 0-based `step`; `lr` is set."""
        pairs = ((optimizer, group) for optimizer in self.optimizers for group in optimizer.param_groups)
        self._places = {id(p): (optimizer, group) for optimizer, group in pairs for p in group["params"]}
        synchronisation.begin_step(step, self)

    def finish_step(self, synchronisation: Synchronisation, step: int, clip_norm: float | None) -> float:
        """After backward: exchange, clip, update. Returns the norm that ranks agree on (`Synchronisation.agreed_norm`).

        Afterwards the gradients' memory is free for anything.
        """
        for work in [synchronisation.bucket(bucket) for bucket in self.buckets]:
            work.wait()
        update = synchronisation.before_optimizer(step, self)
        norm = self._clip(synchronisation.own, clip_norm)
        if math.isfinite(norm) and update is Update.OPTIMIZER:
            for p in self.named.values():  # fused kernels pair elements as they lie in memory
                if p.grad is not None and p.grad.stride() != p.stride():
                    p.grad = torch.empty_like(p).copy_(p.grad)
            for optimizer in self.optimizers:
                optimizer.step()
            synchronisation.update(step, self)
        agreed = synchronisation.agreed_norm(step, norm)
        if math.isfinite(agreed):
            synchronisation.after_optimizer(step, self)
        return agreed

    def _clip(self, own: Collection[str], limit: float | None) -> float:
        """Clip the gradients that the optimizers take, by their joint norm; of `own` they take none. Returns all's."""
        everything = norm_of([p.grad for p in self.named.values() if p.grad is not None])
        for name in own:
            self.named[name].grad = None
        taken = [p.grad for p in self.named.values() if p.grad is not None]
        clip([local(g) for g in taken], norm_of(taken) if own else everything, limit)
        return everything

    def weight_decay(self, name: str) -> float:
        return self._places[id(self.named[name])][1].get("weight_decay", 0.0)

    def adam(self, name: str) -> AdamState | None:
        optimizer, group = self._places[id(self.named[name])]
        if not (state := optimizer.state.get(self.named[name])):
            return None
        beta1, beta2 = group["betas"]
        return AdamState(local(state["exp_avg"]), local(state["exp_avg_sq"]), beta1, beta2, group["eps"])

    def stages_of(self, name: str) -> int:
        return 1

    def changed(self) -> None:
        if self._changed is not None:
            self._changed()

    def tie(self) -> None:
        """There is one stage."""


def local(tensor: Any) -> Tensor:
    """What this rank has of a tensor that may be sharded; shares its memory."""
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def like(own: Tensor, parameter: Tensor) -> Tensor:
    """What this rank has, sharded as the parameter is; shares its memory."""
    if not isinstance(parameter, DTensor):
        return own
    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(own, mesh, placements, shape=parameter.shape, stride=parameter.stride())


def norm_of(gradients: Sequence[Tensor]) -> float:
    """The joint norm, of all shards where there are any. Collective then."""
    by_mesh: dict[Any, list[Tensor]] = {}
    for gradient in gradients:
        by_mesh.setdefault(getattr(gradient, "device_mesh", None), []).append(gradient)
    norms = [torch.nn.utils.get_total_norm(each) for each in by_mesh.values()]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    return float(whole[0] if len(whole) == 1 else torch.nn.utils.get_total_norm(whole))


def clip(gradients: Sequence[Tensor], norm: float, limit: float | None) -> None:
    """Scale gradients in place so that their joint `norm` is at most `limit`; 0 or None: there is none."""
    if gradients and limit and math.isfinite(norm) and norm > limit:
        torch._foreach_mul_(gradients, limit / (norm + 1e-6))  # type: ignore[attr-defined]
