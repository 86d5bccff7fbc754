"""What grouped kernels share: tables on the device that tell one launch about many tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

import torch
import triton.language as tl
from torch import Tensor

#: Precisions that the kernels read.
TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def table(rows: Iterable[Sequence[int]], device: torch.device) -> Tensor:
    """One row of addresses and sizes a tensor (int64), on `device`.

    Buffers keep their addresses from step to step, so that after the first nothing is copied to the device.
    """
    return _table(tuple(map(tuple, rows)), device)


def tiles(counts: Sequence[int], device: torch.device) -> Tensor:
    """Two numbers a program (int32): which row of the table it works on, and on which of its `counts[row]` tiles."""
    return _tiles(tuple(counts), device)


@lru_cache(maxsize=4096)
def _table(rows: tuple[tuple[int, ...], ...], device: torch.device) -> Tensor:
    return _to(torch.tensor(rows, dtype=torch.int64, device="cpu"), device)


@lru_cache(maxsize=4096)
def _tiles(counts: tuple[int, ...], device: torch.device) -> Tensor:
    each = torch.tensor(counts, device="cpu")
    row = torch.repeat_interleave(torch.arange(len(counts), device="cpu"), each)
    tile = torch.arange(len(row), device="cpu") - (each.cumsum(0) - each)[row]
    return _to(torch.stack([row, tile], dim=1).to(torch.int32), device)


def _to(table: Tensor, device: torch.device) -> Tensor:
    """A copy that the host does not wait for. `table` is the host's, whatever device a user has made the default."""
    return table.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else table


def address(tensor: Tensor | None) -> int:
    """Where a tensor lies in memory, without a gap; 0: there is none."""
    if tensor is None:
        return 0
    if not tensor.is_contiguous():
        raise ValueError(f"a kernel needs a contiguous tensor, not strides {tensor.stride()} of {tuple(tensor.shape)}")
    return tensor.data_ptr()


def alignment(tensors: Iterable[Tensor | None]) -> int:
    """Bytes at a multiple of which all tensors begin: 16, or what any element does."""
    return 16 if all(t is None or t.data_ptr() % 16 == 0 for t in tensors) else 2


def vector(tensors: Iterable[Tensor | None]) -> int:
    """Elements of a row that can be read at once in all matrices: 4 if all rows begin at 16 bytes, else 1."""
    given = [t for t in tensors if t is not None]
    return 4 if alignment(given) == 16 and all(t.shape[-1] % 4 == 0 for t in given) else 1


@cache
def precision() -> str:
    """How `tl.dot` multiplies fp32 here; on AMD's GPUs in fp32, as Triton knows no other way."""
    if torch.version.hip:
        return "ieee"
    return precision_of(torch.cuda.get_device_capability() if torch.cuda.is_available() else (8, 0))


def precision_of(capability: tuple[int, int]) -> str:
    """How `tl.dot` multiplies fp32 on NVIDIA's GPUs: in three tf32 products on tensor cores, about as exact as fp32, or
    in fp32 on those before Ampere, which have no tf32."""
    return "tf32x3" if capability >= (8, 0) else "ieee"


def padded(rank: int) -> int:
    """The power of two, at least 16, that holds `rank` columns: `tl.dot` takes no other."""
    return max(16, 1 << (rank - 1).bit_length())
