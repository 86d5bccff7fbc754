"""Rivals of the low-rank exchange core: PyTorch's own PowerSGD hook, a loop over matrices, and plain expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def ddp_bucket(memory: Tensor, matrices: Sequence[Tensor]) -> Any:
    """What PyTorch's hook reads of a DDP bucket, the first and last: matrices one behind the other in `memory`."""
    return SimpleNamespace(
        index=lambda: 0, is_last=lambda: True, buffer=lambda: memory, gradients=lambda: list(matrices)
    )


class GroupOfOne(dist.ProcessGroup):
    """This process alone, for PyTorch's hooks: a collective moves nothing, and is over when it is called.

    gloo would end it in a thread of its own. A hook goes on to compute there, with a second pool of OpenMP threads.
    From then on there are more of them than cores, and libgomp has every idle thread of the process sleep at once in
    the place of waiting for more: whatever consists of many small products takes longer, for good.
    """

    def __init__(self) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]

    def allreduce(self, tensors: list[Tensor], options: Any = None) -> _Done:
        return _Done(tensors)


class _Done:
    """A collective that is over, and its future."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def get_future(self) -> _Done:
        return self

    def wait(self) -> Any:
        return self._result

    value = wait

    def then(self, callback: Callable[[_Done], Any]) -> _Done:
        return _Done(callback(self))


def torch_hook(memory: Tensor, matrices: Sequence[Tensor], rank: int) -> Callable[[], object]:
    """One call of `torch.distributed`'s powerSGD_hook with its defaults."""
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    state = PowerSGDState(GroupOfOne(), matrix_approximation_rank=rank, start_powerSGD_iter=2)
    state.iter = 2
    bucket = ddp_bucket(memory, matrices)
    return lambda: powerSGD_hook(state, bucket).wait()


def loop(grads: Sequence[Tensor], errors: Sequence[Tensor], starts: Sequence[Tensor]) -> None:
    """Matrix by matrix, in place where torch can, with torch's QR. All matrices go through a step before the next one,
    as they must where a bucket's factors travel together."""
    lefts = [error.add_(grad) @ start for grad, error, start in zip(grads, errors, starts, strict=True)]
    bases = [torch.linalg.qr(left)[0] for left in lefts]
    factors = [error.mT @ basis for error, basis in zip(errors, bases, strict=True)]
    for grad, error, start, basis, factor in zip(grads, errors, starts, bases, factors, strict=True):
        torch.mm(basis, factor.mT, out=grad)
        error.sub_(grad)
        start.copy_(factor)


def eager(grads: Sequence[Tensor], errors: Sequence[Tensor], starts: Sequence[Tensor]) -> None:
    """The formulas as they are written, batched by shape."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for i, grad in enumerate(grads):
        by_shape.setdefault(tuple(grad.shape), []).append(i)
    for indices in by_shape.values():
        whole = torch.stack([grads[i] for i in indices]) + torch.stack([errors[i] for i in indices])
        basis = torch.linalg.qr(whole @ torch.stack([starts[i] for i in indices]))[0]
        factor = whole.mT @ basis
        sent = basis @ factor.mT
        lost = whole - sent
        for number, i in enumerate(indices):
            grads[i].copy_(sent[number])
            errors[i].copy_(lost[number])
            starts[i].copy_(factor[number])


def adjacent(shapes: Sequence[tuple[int, int]], device: str, seed: int) -> tuple[Tensor, list[Tensor]]:
    """Normal numbers in one memory, and its parts as matrices."""
    numel = sum(m * n for m, n in shapes)
    memory = torch.randn(numel, generator=torch.Generator(device).manual_seed(seed), device=device)
    return memory, [part.view(s) for part, s in zip(memory.split([m * n for m, n in shapes]), shapes, strict=True)]
