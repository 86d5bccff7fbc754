"""Lossless: dense's average with an entropy coder on the wire, byte planes and zstd.

ZipCCL (arXiv 2604.27844) does so on GPUs, with a code for exponents of its own; LM-GC (arXiv 2409.17836) codes
gradients with a language model, offline. Here the coder is a library and runs on the host: from a GPU every message is
copied there and back. Coded messages cannot be summed, so there are two shots: coded parts to each part's owner, who
decodes and adds them, and the coded mean to all.

A float's high byte, sign and most of the exponent, takes few values; its low bytes are close to random. So the bytes of
one place of all elements lie together, and each such plane is coded alone (as ZipNN does for models: arXiv 2411.05239;
zstd: RFC 8878).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from edgc.core.aggregators.aggregator import AggregatorSettings, Exchange, LastPending, Law, NamedTensor, WireDtype
from edgc.core.aggregators.coded import Coded
from edgc.core.aggregators.dense import unpack
from edgc.core.aggregators.workload import Kernel, Message, Phase, Shape, Workload, elements, memory_passes
from edgc.core.base.errors import UserError
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, ReduceOp, reduced
from edgc.core.policies.amounts import On
from edgc.core.policies.policy import Decision

BLOCK = 128  #: elements that stay together when a bucket is dealt to its owners
LENGTH = 8  #: bytes of a plane's length on the wire
#: Bytes of fp32 gradients a second on one core, for the cluster model: measured, results/published/lossless.
ENCODES, DECODES = 950e6, 850e6


class LosslessSettings(AggregatorSettings):
    """What is coded, how hard the coder tries, and what the cluster model expects of it."""

    name: Literal["lossless"]
    wire_dtype: WireDtype = Field(
        "fp32", description="fp32: the gradients as they are; bf16: as dense with a bf16 wire rounds them and their sum"
    )
    level: int | None = Field(
        None,
        ge=1,
        le=19,
        description="zstd's level; null: it looks for long repeats only, which is faster than level 1 and leaves less "
        "of exponents",
    )
    expected_ratio: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Coded bytes for each byte that the cluster model reckons with, as only data tells them; 1: the "
        "most that can travel; results/published/lossless has measured ones",
    )

    @property
    def laws(self) -> set[Law]:
        """Those of `Dense`, but that the order of a sum may be another."""
        return {Law.EXACT_AT_FULL_AMOUNT} if self.wire_dtype == "bf16" else {*Law} - {Law.LINEAR}


class Lossless(Coded):
    """A bucket is dealt to owners in blocks, and both shots are coded; sizes go ahead of what is coded.

    The owner adds in rank order and rounds where `Dense` does: the average is that of a dense exchange, but for the
    order of the sum.
    """

    Settings = LosslessSettings
    amount = On
    state_size: ClassVar[str] = "none"
    payload_formula: ClassVar[str] = "as data has it; at most (1 + 1/N)·(4 or 2)·numel, and 8 per plane and message"
    settings: LosslessSettings

    def __init__(self, settings: LosslessSettings, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self._planes = BytePlanes(settings.level)

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        flat = torch.cat([t.tensor.reshape(-1) for t in tensors])
        deal, on = _Deal(len(flat), comm.size), flat.device
        scale = 1 / comm.size  # where dense does: before the sum, and before rounding
        if self.settings.wire_dtype == "bf16":
            flat, scale = flat.mul_(scale).to(torch.bfloat16), 1.0
        whole, kind = deal.out(flat), flat.dtype
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        coded = {rank: self._planes.encode(whole[rank]) for rank in others}
        lengths = torch.zeros(comm.size, kind.itemsize, dtype=torch.int64)
        for rank, (_, of_planes) in coded.items():
            lengths[rank] = torch.tensor(of_planes)
        sent, announced = lengths.to(on), torch.empty_like(lengths, device=on)
        yield comm.all_to_all(announced.view(-1), sent.view(-1))

        announced = announced.cpu()  # zeros for this rank's own part, which nobody sends
        to, of = lengths.sum(1).tolist(), announced.sum(1).tolist()
        message = torch.cat([coded[rank][0] for rank in others]).to(on)
        received = message.new_empty(sum(of))
        yield comm.all_to_all(received, message, sent=to, received=of)

        parts = self._decoded(received.split(of), announced, whole[comm.rank], comm.rank)
        mean = reduced([part * scale for part in parts], ReduceOp.SUM).to(kind)
        reply, of_planes = self._planes.encode(mean)
        of_all = torch.empty(comm.size, kind.itemsize, dtype=torch.int64, device=on)
        yield comm.all_gather(of_all, torch.tensor(of_planes).to(on))

        of_all = of_all.cpu()
        sizes = of_all.sum(1).tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8, device=on)
        padded[: len(reply)] = reply
        everywhere = padded.new_empty(comm.size, len(padded))
        yield LastPending(comm.all_gather(everywhere, padded))

        replies = [row[:size] for row, size in zip(everywhere, sizes, strict=True)]
        averages = self._decoded(replies, of_all, mean, comm.rank)
        unpack(deal.back(torch.stack(averages)), [t.tensor for t in tensors])

    def _decoded(self, messages: Sequence[Tensor], lengths: Tensor, own: Tensor, rank: int) -> list[Tensor]:
        """What every rank coded, as many values each; this rank's own is known."""
        return [
            own if of == rank else self._planes.decode(message, of_planes, len(own), own.dtype).to(own.device)
            for of, (message, of_planes) in enumerate(zip(messages, lengths.tolist(), strict=True))
        ]

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        """Payloads are `expected_ratio` of the most that can travel; coding takes the host's time, not the device's."""
        numel, width = elements([*shapes.values()]), 2 if self.settings.wire_dtype == "bf16" else itemsize
        part = width * _Deal(numel, ranks).part
        coded = ceil(self.settings.expected_ratio * part)
        encode = memory_passes(numel, 4, itemsize), _on_host((ranks - 1) * part / ENCODES)
        mean = _on_host((ranks - 1) * part / DECODES), memory_passes(numel, 3, width), _on_host(part / ENCODES)
        decode = _on_host((ranks - 1) * part / DECODES), memory_passes(numel, 4, itemsize)
        return Workload(
            (
                Phase(encode, (Message("all_to_all", LENGTH * width * ranks),)),
                Phase((), (Message("all_to_all", coded * ranks),)),
                Phase(mean, (Message("all_gather", LENGTH * width),)),
                Phase((), (Message("all_gather", coded),)),
            ),
            decode,
        )


@dataclass(frozen=True)
class _Deal:
    """A buffer of `numel` elements, dealt in blocks: parts are alike, so that no owner's message is far longer."""

    numel: int
    ranks: int

    @property
    def _block(self) -> int:
        return min(BLOCK, ceil(self.numel / self.ranks))

    @property
    def _rounds(self) -> int:
        return ceil(self.numel / (self.ranks * self._block))

    @property
    def part(self) -> int:
        """Elements of an owner, with zeros in the place of those that are missing at the end."""
        return self._rounds * self._block

    def out(self, flat: Tensor) -> Tensor:
        """A copy of `flat`, ranks × part."""
        whole = flat.new_zeros(self.ranks * self.part)
        whole[: self.numel] = flat
        return whole.view(self._rounds, self.ranks, self._block).transpose(0, 1).reshape(self.ranks, self.part)

    def back(self, parts: Tensor) -> Tensor:
        """What `out` was given."""
        return parts.view(self.ranks, self._rounds, self._block).transpose(0, 1).reshape(-1)[: self.numel]


def _on_host(seconds: float) -> Kernel:
    return Kernel(host_seconds=seconds, launches=0)


#: Bytes of exponents repeat by chance again and again; to tell where costs more than to code each by its frequency. A
#: table of only 2^8 places to look at finds few such repeats, and still the long ones, of zeros say.
LONG_REPEATS = {
    "strategy": 1,
    "window_log": 17,
    "hash_log": 8,
    "chain_log": 6,
    "search_log": 1,
    "min_match": 7,
    "target_length": 0,
}  # fmt: skip  strategy 1: zstd's `fast`


class BytePlanes:
    """A coder for one thread: zstd's memory is kept from call to call.

    Args:
        level: zstd's, from 1 (fast) to 22; None: `LONG_REPEATS`.

    Raises:
        UserError: the package zstandard is not installed.
    """

    def __init__(self, level: int | None = None) -> None:
        try:
            import zstandard
        except ModuleNotFoundError:
            raise UserError(
                'aggregator = lossless: its coder, the package zstandard, is not installed; pip install "edgc[suite]", '
                "or choose another aggregator"
            ) from None
        options = LONG_REPEATS if level is None else {"compression_level": level}
        parameters = zstandard.ZstdCompressionParameters(**options, write_content_size=False)
        self._compressor = zstandard.ZstdCompressor(compression_params=parameters)
        self._decompressor = zstandard.ZstdDecompressor()

    def __deepcopy__(self, memo: object) -> BytePlanes:
        """Itself: nothing is kept from message to message."""
        return self

    def encode(self, values: Tensor) -> tuple[Tensor, list[int]]:
        """The planes of `values` (1-D, not empty), one after another (uint8, on the host), and the bytes of each.

        A plane that zstd does not make smaller stays as it is: a plane's bytes are at most its elements, and fewer if
        and only if it is coded. Elements of one byte are one plane.
        """
        bytes_nw = values.contiguous().view(torch.uint8).cpu().numpy().reshape(len(values), -1)
        planes = [self._smaller(plane.tobytes()) for plane in bytes_nw.T]
        return torch.frombuffer(bytearray().join(planes), dtype=torch.uint8), [len(plane) for plane in planes]

    def _smaller(self, plane: bytes) -> bytes:
        coded = self._compressor.compress(plane)
        return coded if len(coded) < len(plane) else plane

    def decode(self, message: Tensor, lengths: Sequence[int], numel: int, kind: torch.dtype) -> Tensor:
        """The `numel` values of type `kind`, on the host, that `encode` gave `message` and `lengths` for."""
        planes_wn = np.empty((len(lengths), numel), dtype=np.uint8)
        coded, begin = message.cpu().numpy().data, 0
        for plane, length in zip(planes_wn, lengths, strict=True):
            part = coded[begin : begin + length]
            whole = part if length == numel else self._decompressor.decompress(part, max_output_size=numel)
            plane[:] = np.frombuffer(whole, dtype=np.uint8)
            begin += length
        return torch.from_numpy(np.ascontiguousarray(planes_wn.T).reshape(-1)).view(kind)
