"""What lies on the device: every storage from its first tensor to its last, with an address that nobody else has."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping

import torch
from torch._subclasses.fake_tensor import FakeTensor

from edgc.tools.dry.notes import place

#: In this order: a tensor counts for the first that it is found in. `activations` is what is left at the peak, with
#: temporary buffers.
CATEGORIES = ("parameters", "gradients", "optimizer", "method", "activations")

FIRST = 0x7F00_0000_0000  #: addresses begin here: no real tensor of a CPU lies there
ALIGNED = 512  #: bytes, as torch's allocator rounds on CUDA
GROWTH = 1.002  #: all blocks are noted when bytes have grown by so much: there are too many to note them at every one


class Block:
    """A storage on the device."""

    def __init__(self, begin: int, size: int, where: str) -> None:
        self.begin, self.size, self.where = begin, size, where
        self.integers: torch.Tensor | None = None  #: what a table holds that was copied here from the host


class DeviceMemory:
    """All blocks, bytes now and at the most, and the blocks of about that moment (see `GROWTH`)."""

    def __init__(self) -> None:
        self._next = FIRST
        self._blocks: dict[int, Block] = {}  # alive, by address
        self._of: weakref.WeakKeyDictionary[torch.UntypedStorage, Block] = weakref.WeakKeyDictionary()
        self.bytes = 0
        self.peak = 0
        self._noted = 0  # bytes when all blocks were noted last
        self._at_peak: dict[int, Block] = {}

    def block(self, tensor: torch.Tensor) -> Block:
        """The block that a tensor on the device lies in."""
        storage = tensor.untyped_storage()
        found = self._of.get(storage)
        if found is None:
            found = self._of[storage] = self._add(-(-storage.nbytes() // ALIGNED) * ALIGNED)
            weakref.finalize(storage, self._end, found)
        return found

    def _add(self, size: int) -> Block:
        block = Block(self._next, size, place())
        self._next += max(size, ALIGNED)
        self._blocks[block.begin] = block
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        if self.bytes > GROWTH * self._noted:
            self._at_peak, self._noted = dict(self._blocks), self.bytes
        return block

    def _end(self, block: Block) -> None:
        if self._blocks.pop(block.begin, None) is not None:
            self.bytes -= block.size

    def address(self, tensor: torch.Tensor) -> int:
        """Where a tensor's first element lies."""
        return self.block(tensor).begin + int(tensor.storage_offset()) * tensor.element_size()

    def holds(self, address: int) -> bool:
        """Whether the address lies in a block that is alive."""
        return any(b.begin <= address < b.begin + max(b.size, 1) for b in self._blocks.values())

    def begin(self) -> None:
        """Count from here: what is left of runs before this one lies elsewhere."""
        self.bytes = self.peak = 0
        self._blocks, self._at_peak, self._noted = {}, {}, 0

    def forget_peak(self) -> None:
        """The peak is of what comes now."""
        self.peak = self.bytes

    def by_category(self, tensors: Mapping[str, Iterable[torch.Tensor]], rest: str) -> dict[str, int]:
        """Bytes at the peak by the category of the first of the `tensors` that lies there; `rest`: none does."""
        of: dict[int, str] = {}
        for category, some in tensors.items():
            for tensor in some:
                if isinstance(tensor, FakeTensor) and tensor.device.type == "cuda":
                    of.setdefault(self.block(tensor).begin, category)
        sizes = dict.fromkeys([*tensors, rest], 0)
        for begin, block in self._at_peak.items():
            sizes[of.get(begin, rest)] += block.size
        sizes[rest] += self.peak - self._noted
        return sizes
