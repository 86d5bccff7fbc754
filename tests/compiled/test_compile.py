"""Every kernel as it is launched, compiled for GPUs that are not here: it fits in shared memory and spills nothing.

The operations run on small CPU tensors with the launches caught, so that what is compiled has the constants, the
precisions and the specialisation of a real launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from edgc.core.aggregators.factor_means import Rotation
from edgc.core.ops import kernel_launch as launch
from edgc.core.ops.block_code import BlockCode
from edgc.core.ops.block_code import triton as block_code
from edgc.core.ops.lowrank import triton as lowrank
from edgc.core.ops.moments import triton as moments
from edgc.core.ops.orthonormalise import triton as orthonormalise
from edgc.core.ops.select import Pool
from edgc.core.ops.select import triton as select
from edgc.tools.dry.compilation import Source, resources

RANKS = (16, 32, 64, 128)
#: Bytes of shared memory that one program may have.
TARGETS = {
    "sm_70": (GPUTarget("cuda", 70, 32), 96 << 10),
    "sm_80": (GPUTarget("cuda", 80, 32), 163 << 10),
    "sm_90": (GPUTarget("cuda", 90, 32), 227 << 10),
    "sm_100": (GPUTarget("cuda", 100, 32), 227 << 10),
    "gfx942": (GPUTarget("hip", "gfx942", 64), 64 << 10),
}
FP32, BF16 = torch.float32, torch.bfloat16

#: Every kernel there is.
KERNELS = {
    name
    for module in (block_code, lowrank, moments, orthonormalise, select)
    for name, value in vars(module).items()
    if isinstance(value, JITFunction) and name.endswith("_kernel")
}


class Launch(NamedTuple):
    """A kernel with the arguments of a launch."""

    kernel: JITFunction
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def constants(self) -> str:
        """What distinguishes it from other launches of the kernel."""
        return " ".join(f"{name}={value}" for name, value in self.kwargs.items())


def decode(rank: int, grad: torch.dtype, feedback: bool, told: bool = False) -> None:
    gradient = torch.zeros(128, 256, dtype=grad)
    memory = torch.zeros(128, 256) if feedback else None
    factors = [torch.zeros(128, rank)], [torch.zeros(256, rank)]
    lowrank.decode(*factors, [gradient], [memory], factors if told else None)


def top(grad: torch.dtype, feedback: bool) -> None:
    select.select([Pool(torch.zeros(9000, dtype=grad), torch.zeros(9000) if feedback else None, 10)])


def entropies(dtype: torch.dtype, stride: int) -> None:
    tensor = torch.zeros(90000, dtype=dtype)
    moments.histogram([tensor], [stride], moments.moments([tensor], [stride]))


def coded(block: int, rotate: bool) -> None:
    block_code._compile.cache_clear()  # which launches every width
    block_code.encode(torch.zeros(2, 64 * block), BlockCode(4, block), Rotation(block) if rotate else None)


#: What is run: every operation with every rank in the usual precisions, and with the others at one rank.
RUNS: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
    *((decode, (rank, FP32, True)) for rank in (*RANKS, 512)),
    (decode, (64, BF16, True)),
    (decode, (64, FP32, False)),
    *((decode, (rank, FP32, True, True)) for rank in (*RANKS, 512)),
    *((lambda rank: orthonormalise.orthonormalise([torch.ones(256, rank)]), (rank,)) for rank in RANKS),
    *((coded, (block, rotate)) for block in (32, 128, 256) for rotate in (False, True)),
    *((top, (dtype, feedback)) for dtype, feedback in ((FP32, True), (BF16, True), (BF16, False))),
    *((entropies, (dtype, stride)) for dtype, stride in ((FP32, 1), (FP32, 5), (BF16, 1), (BF16, 5))),
]


def launches(patch: pytest.MonkeyPatch, precision: str) -> list[Launch]:
    """Different launches of `RUNS`, none of which happens."""
    caught: dict[tuple[str, str, str], Launch] = {}

    def catch(kernel: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        one = Launch(kernel, args, kwargs)
        kinds = ",".join(str(a.dtype) if isinstance(a, Tensor) else type(a).__name__ for a in args)
        caught[kernel.__name__, kinds, one.constants] = one

    patch.setattr(JITFunction, "run", catch)
    patch.setattr(launch, "precision", lambda: precision)
    for run, arguments in RUNS:
        run(*arguments)
    return list(caught.values())


def taken(one: Launch, target: GPUTarget) -> tuple[int, int, int]:
    """Of a kernel compiled as it is launched: registers of a thread, bytes that it spills, and of shared memory."""
    binary = Source.of(one.kernel, target, one.args, one.kwargs).compiled(target)
    if target.backend == "cuda":
        found = resources(binary)
        return found.registers, found.spilled, found.shared
    text = binary.asm["amdgcn"]
    counts = [re.search(rf"\.{what}:\s*(\d+)", text) for what in ("vgpr_count", "vgpr_spill_count")]
    assert all(counts)
    return int(counts[0][1]), 4 * int(counts[1][1]), binary.metadata.shared  # type: ignore[index]


@pytest.mark.timeout(3600)  # some minutes where nothing is in Triton's cache
@pytest.mark.parametrize("name", TARGETS)
def test_fits_and_does_not_spill(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, most_shared = TARGETS[name]
    failed = []
    found = launches(monkeypatch, "ieee" if name in ("sm_70", "gfx942") else "tf32x3")
    assert {one.kernel.__name__ for one in found} == KERNELS, "a kernel that no run launches is not looked at"
    for one in found:
        registers, spilled, shared = taken(one, target)
        if spilled or shared > most_shared:
            failed.append(
                f"{one.kernel.__name__} {one.constants}: {registers} registers, {spilled} B spilled, {shared} B"
            )
    assert not failed, "\n".join(failed)
