"""Rivals of the low-rank exchange core: PyTorch's own PowerSGD hook, a loop over matrices, and plain expressions."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor


def ddp_bucket(memory: Tensor, matrices: Sequence[Tensor]) -> Any:
    """What PyTorch's hook reads of a DDP bucket, the first and last: matrices one behind the other in `memory`."""
    return SimpleNamespace(
        index=lambda: 0, is_last=lambda: True, buffer=lambda: memory, gradients=lambda: list(matrices)
    )


#: Groups are held to the end of the process. A hook's callbacks hold its group, too, and a thread of gloo frees them
#: some time after what they complete was awaited. Were they the last to hold it, that thread would end the group, wait
#: for itself, and abort the process.
_GROUPS: list[object] = []


@contextmanager
def group_of_one(device: str) -> Iterator[None]:
    """A process group of this process alone, for PyTorch's hook: its collectives move nothing."""
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    _GROUPS.append(dist.group.WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()


def torch_hook(memory: Tensor, matrices: Sequence[Tensor], rank: int) -> Callable[[], object]:
    """One call of `torch.distributed`'s powerSGD_hook with its defaults, in a `group_of_one`."""
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    state = PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
    state.iter = 2
    bucket = ddp_bucket(memory, matrices)
    return lambda: powerSGD_hook(state, bucket).wait()


def torch_hook_apart(memory: Tensor, shapes: Sequence[tuple[int, int]], rank: int) -> Callable[[], object]:
    """`torch_hook` in a process of its own, on the matrices of `shapes` in `memory` (on the CPU), which becomes shared.

    A call waits for it. The process ends with the last reference to what is returned.

    The hook's collectives end in a thread of the process group, which goes on to compute there, with a second pool of
    OpenMP threads. From then on there are more of them than cores, and libgomp has every idle thread of the process
    sleep at once in the place of waiting for more: whatever consists of many small products takes longer, for good.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(theirs, memory.share_memory_(), list(shapes), rank, torch.get_num_threads()), daemon=True
    )
    process.start()
    theirs.close()
    ours.recv()  # it is ready

    def run() -> None:
        ours.send(None)
        ours.recv()

    weakref.finalize(run, ours.close)  # which ends the other's loop
    return run


def _serve(pipe: Connection, memory: Tensor, shapes: list[tuple[int, int]], rank: int, threads: int) -> None:
    torch.set_num_threads(threads)
    with group_of_one("cpu"):
        hook = torch_hook(memory, parts(memory, shapes), rank)
        try:
            while True:
                pipe.send(None)
                pipe.recv()
                hook()
        except (EOFError, BrokenPipeError):
            return


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
    return memory, parts(memory, shapes)


def parts(memory: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Matrices that lie one behind the other in `memory`."""
    ends = [0, *accumulate(m * n for m, n in shapes)]
    return [memory[a:b].view(shape) for a, b, shape in zip(ends, ends[1:], shapes, strict=False)]
