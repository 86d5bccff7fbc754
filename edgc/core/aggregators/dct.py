"""DeMo's code: the largest DCT coefficients of every chunk; the rest waits, and decays (arXiv 2411.19870).

The transform is the orthonormal DCT-II of both dimensions of every chunk. Chunks are cut as in chunk_topk.py; the
paper's own choice of them is unconfirmed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import pi
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from edgc.core.aggregators.aggregator import AggregatorSettings, Law
from edgc.core.aggregators.chunk_topk import Chunks, ChunkTopK, Mean
from edgc.core.aggregators.workload import Kernel, Message, Phase, Shape, Workload, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.policies.policy import Decision

INDEX_BYTES = 2  #: of a coefficient's place in its chunk


class DctSettings(AggregatorSettings):
    """DeMo's settings, and the paper's values."""

    name: Literal["dct"]
    chunk: int = Field(64, ge=2, le=128, description="Largest side of a chunk")
    k: PositiveInt = Field(32, description="Coefficients that are sent of every chunk")
    decay: float = Field(
        0.999, ge=0, le=1, description="β: what a step leaves of what was not sent before; 1: all, 0: no error feedback"
    )
    mean: Mean = Field("senders", description="A coefficient's mean is over the ranks that sent it, or over all")

    tolerance: ClassVar[float] = 64.0

    @property
    def keeps_residual(self) -> bool:
        return self.decay > 0

    @property
    def laws(self) -> set[Law]:
        """Decay forgets, and a mean over senders is larger than the mean."""
        return {Law.CONSERVES} if self.decay == 1 and self.mean == "ranks" else set()


class Dct(ChunkTopK):
    """M ← β M + G; the k largest coefficients of M's chunks are sent and leave M; all ranks decode their mean.

    So it is `ChunkTopK` of transformed chunks, with another code.
    """

    Settings = DctSettings
    payload_formula: ClassVar[str] = "6·k per chunk of at most chunk² elements"

    def forward(self, chunks: Chunks, tensor: Tensor) -> Tensor:
        (a, b), kind, where = chunks.sides, tensor.dtype, tensor.device
        return (cosines(a, kind, where) @ chunks.cut(tensor) @ cosines(b, kind, where).mT).reshape(-1, chunks.size)

    def inverse(self, chunks: Chunks, coefficients: Tensor) -> Tensor:
        (a, b), kind, where = chunks.sides, coefficients.dtype, coefficients.device
        return chunks.join(cosines(a, kind, where).mT @ coefficients.view(-1, a, b) @ cosines(b, kind, where))

    def encode(
        self, every: Sequence[Chunks], values: Sequence[Tensor], places: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        what, where = (torch.cat([part.reshape(-1) for part in parts]) for parts in (values, places))
        return torch.cat([what.view(torch.uint8), where.to(torch.int16).view(torch.uint8)]), values

    def decode(self, every: Sequence[Chunks], messages: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        count = messages.shape[1] // (kind.itemsize + INDEX_BYTES)
        what, where = messages.split([kind.itemsize * count, INDEX_BYTES * count], dim=1)
        return what.contiguous().view(kind), where.contiguous().view(torch.int16).long()

    def _clipped(self, values: Tensor) -> Tensor:
        return values

    def message_bytes(self, every: Sequence[Chunks], itemsize: int) -> int:
        return sum(each.count * self._kept(each) for each in every) * (itemsize + INDEX_BYTES)

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        size, every = max(4, itemsize), [self._chunks(shape) for shape in shapes.values()]
        numel = sum(each.count * each.size for each in every)
        pairs = sum(each.count * self._kept(each) for each in every)
        transform = Kernel(flops=sum(2.0 * e.count * e.size * sum(e.sides) for e in every), bytes=4.0 * size * numel)
        # M ← β M + G and its transform; the selection; what was chosen is put into zeros, transformed and taken from M
        encode = (
            memory_passes(numel, 4, size),
            transform,
            memory_passes(numel, 3, size),
            transform,
            memory_passes(numel, 4, size),
        )
        decode = (
            memory_passes(numel, 6, size),
            memory_passes(ranks * pairs, 3, size + INDEX_BYTES),
            transform,
            memory_passes(numel, 2, size),
        )
        return Workload((Phase(encode, (Message("all_gather", self.message_bytes(every, size)),)),), decode)

    def _kept(self, chunks: Chunks) -> int:
        """How many of a chunk's coefficients are sent."""
        return min(self.settings.k, chunks.size)


@lru_cache
def cosines(n: int, kind: torch.dtype, where: torch.device) -> Tensor:
    """The orthonormal DCT-II (n×n): its transpose is its inverse."""
    k, i = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)[None]
    matrix = torch.cos(pi / (2 * n) * (2 * i + 1) * k) * (2 / n) ** 0.5
    matrix[0] *= 0.5**0.5
    return matrix.to(where, kind)
