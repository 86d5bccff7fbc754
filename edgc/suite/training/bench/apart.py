"""PyTorch's hook in a process of its own, on memory that both share.

Its collectives end in a thread of the process group, which goes on to compute there, with a second pool of OpenMP
threads. From then on there are more of them than cores, and libgomp has every idle thread of the process sleep at once
in the place of waiting for more: whatever consists of many small products takes longer, for good.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor

from edgc.suite.training.bench.exchange_core import group_of_one, parts, torch_hook


def torch_hook_apart(memory: Tensor, shapes: Sequence[tuple[int, int]], rank: int) -> Callable[[], object]:
    """`torch_hook` on the matrices of `shapes` in `memory` (on the CPU), which becomes shared; a call waits for it.

    The process ends with the last reference to what is returned.
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
