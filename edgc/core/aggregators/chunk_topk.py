"""SparseLoCo's code: the largest elements of every chunk, in 12 bits for where and two for what (arXiv 2508.15706).

What is not sent waits and decays, as in DeMo's code, which is this one with a transform (dct.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from edgc.core.aggregators.aggregator import AggregatorSettings, Exchange, LastPending, Law, NamedTensor, compute_dtype
from edgc.core.aggregators.coded import Coded
from edgc.core.aggregators.sparse_code import SparseCode, Values, pack12, unpack12
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator
from edgc.core.policies.amounts import DENSE, Amount, On
from edgc.core.policies.policy import Decision

#: Over whom a number's mean is taken: the ranks that sent it, or all.
Mean = Literal["senders", "ranks"]


class ChunkTopKSettings(AggregatorSettings):
    """SparseLoCo's settings, and its values."""

    name: Literal["chunk_topk"]
    chunk: int = Field(64, ge=2, le=64, description="Largest side of a chunk; 64: a place in it takes 12 bits")
    k: PositiveInt = Field(
        64, description="Elements that are sent of a chunk of chunk² elements; of a smaller one in proportion"
    )
    decay: float = Field(
        0.95, ge=0, le=1, description="β: what a step leaves of what was not sent before; 1: all, 0: no error feedback"
    )
    values: Values = Field(
        "stat2",
        description="What an element's value travels in. stat2: two bits, each of a tensor's four bins decoded to its "
        "mean; int8, int4: with a scale for 64 values; fp32, bf16",
    )
    mean: Mean = Field("senders", description="An element's mean is over the ranks that sent it, or over all")
    clip: Literal["none", "median"] = Field(
        "median",
        description="median: of what ranks sent of a tensor, what is longer than the median is scaled down to that "
        "length (of an even number the lower of both in the middle)",
    )

    @property
    def keeps_residual(self) -> bool:
        return self.decay > 0

    @property
    def laws(self) -> set[Law]:
        """Decay forgets, clipping loses, and a mean over senders is larger than the mean."""
        conserves = self.decay == 1 and self.mean == "ranks" and self.clip == "none"
        return {Law.CONSERVES} if conserves else set()


class ChunkTopK(Coded):
    """E ← β E + G; the largest of E's chunks are sent, and leave E as they are decoded; all ranks decode their mean.

    What is not smaller coded travels dense: all of it is sent then, so nothing waits.
    """

    Settings: ClassVar[type[AggregatorSettings]] = ChunkTopKSettings
    amount = On
    state_size: ClassVar[str] = "numel (decaying error feedback) per tensor"
    payload_formula: ClassVar[str] = "k·(12 bits + value) per chunk of at most chunk² elements"

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        every = [self._chunks(tuple(t.tensor.shape)) for t in tensors]
        errors = [self._errors(t) for t in tensors]
        chosen = [c.largest(self.forward(c, e), self._kept(c)) for c, e in zip(every, errors, strict=True)]
        places = [at for _, at in chosen]
        message, sent = self.encode(every, [values for values, _ in chosen], places)
        for c, error, own, at in zip(every, errors, sent, places, strict=True):
            error.sub_(self.inverse(c, c.spread(own.view_as(at), at)))
        received = message.new_empty(comm.size, len(message))
        yield LastPending(comm.all_gather(received, message))

        sizes = [at.numel() for at in places]
        values, where = self.decode(every, received, errors[0].dtype)
        for t, c, of_all, at in zip(tensors, every, values.split(sizes, 1), where.split(sizes, 1), strict=True):
            t.tensor.copy_(self.inverse(c, c.mean(self._clipped(of_all), at, self.settings.mean)))

    def _errors(self, t: NamedTensor) -> Tensor:
        """β E + G: this rank's memory, or where there is none a copy."""
        if self.settings.keeps_residual:
            return self.residuals.memory(t).mul_(self.settings.decay).add_(t.tensor)
        return t.tensor.to(compute_dtype(t.tensor), copy=True)

    def forward(self, chunks: Chunks, tensor: Tensor) -> Tensor:
        """What is selected from of a tensor's chunks, count × size: its elements."""
        return chunks.cut(tensor).reshape(-1, chunks.size)

    def inverse(self, chunks: Chunks, coefficients: Tensor) -> Tensor:
        """A tensor of the shape, of what `forward` gives."""
        return chunks.join(coefficients)

    def encode(
        self, every: Sequence[Chunks], values: Sequence[Tensor], places: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """The message (uint8) of chosen values and places (count × k each); and the values as it decodes."""
        code, kind = self._code(every, values[0].element_size()), values[0].dtype
        where = pack12(torch.cat([at.view(-1) for at in places]))
        what = code.encode_values([own.view(-1) for own in values])
        return torch.cat([where, what]), code.decode_values(what[None], kind)[0].split(list(code.ks))

    def decode(self, every: Sequence[Chunks], messages: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Values of type `kind` and places (int64), ranks × elements, of messages (ranks × bytes)."""
        code = self._code(every, kind.itemsize)
        where, what = messages.split([messages.shape[1] - code.values_bytes, code.values_bytes], dim=1)
        places = torch.stack([unpack12(row, sum(code.ks)) for row in where])
        return code.decode_values(what, kind), places

    def _clipped(self, values: Tensor) -> Tensor:
        """What ranks sent of a tensor (ranks × elements)."""
        if self.settings.clip == "none":
            return values
        norms = torch.linalg.vector_norm(values, dim=1, keepdim=True)
        return torch.where(norms > norms.median(), values * (norms.median() / norms), values)

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """Dense where the message is no smaller than the tensor in fp32."""
        if amount is DENSE or not prod(shape):
            return DENSE
        return amount if self.message_bytes([self._chunks(shape)], 4) < 4 * prod(shape) else DENSE

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        size, every = max(4, itemsize), [self._chunks(shape) for shape in shapes.values()]
        numel, pairs = sum(map(prod, shapes.values())), sum(self._code(every, size).ks)
        # E ← β E + G, cut; the selection; what was chosen coded and decoded, put into zeros and taken from E
        encode = (
            memory_passes(numel, 5, size),
            memory_passes(numel, 2, size),
            memory_passes(pairs, 6, size),
            memory_passes(numel, 5, size),
        )
        # sums and senders in zeros, every rank's pairs added in turn, the quotient joined and copied
        decode = memory_passes(numel, 9, size), memory_passes(ranks * pairs, 6, size)
        message = Message("all_gather", self.message_bytes(every, size))
        return Workload((Phase(encode, (message,)),), decode)

    def message_bytes(self, every: Sequence[Chunks], itemsize: int) -> int:
        """Of what is chosen of these chunks, with values of so many bytes."""
        code = self._code(every, itemsize)
        return -(-12 * sum(code.ks) // 8) + code.values_bytes

    def _code(self, every: Sequence[Chunks], itemsize: int) -> SparseCode:
        """Of the chosen values of all tensors, each a pool."""
        numels, ks = tuple(c.count * c.size for c in every), tuple(c.count * self._kept(c) for c in every)
        return SparseCode(numels, ks, "blocks", self.settings.values, itemsize)

    def _chunks(self, shape: Shape) -> Chunks:
        return Chunks(shape, self.settings.chunk)

    def _kept(self, chunks: Chunks) -> int:
        """How many elements of a chunk are sent: rounded as in the authors' code, at least one."""
        return min(chunks.size, max(1, round(chunks.size * self.settings.k / self.settings.chunk**2)))


class Chunks:
    """How a tensor of a shape is cut: `count` chunks of `size` elements, `sides` long.

    A matrix is cut into chunks of at most `largest`×`largest`, anything else into rows of at most `largest`: by the
    largest divisors of its dimensions, as in SparseLoCo's published code, which has it of DeMo's.
    """

    def __init__(self, shape: Shape, largest: int) -> None:
        self._shape = shape
        # rows and columns; of what is no matrix, chunks of one row
        self._grid = shape if len(shape) == 2 else (1, prod(shape))
        self.sides = tuple(max(d for d in range(1, min(n, largest) + 1) if n % d == 0) for n in self._grid)
        self.size = prod(self.sides)
        self.count = prod(shape) // self.size

    def cut(self, tensor: Tensor) -> Tensor:
        """Chunks as matrices, rows / a × columns / b × a × b."""
        (rows, columns), (a, b) = self._grid, self.sides
        return tensor.reshape(rows // a, a, columns // b, b).transpose(1, 2)

    def join(self, chunks: Tensor) -> Tensor:
        """A tensor of the shape, of chunks as `cut` gives them, or count × size."""
        (rows, columns), (a, b) = self._grid, self.sides
        return chunks.reshape(rows // a, columns // b, a, b).transpose(1, 2).reshape(self._shape)

    def largest(self, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k elements of each chunk that are largest in magnitude, and their places in it (int64): count × k.

        `values`: count × size.
        """
        places = values.abs().topk(k, dim=1, sorted=False).indices
        return values.gather(1, places), places

    def spread(self, values: Tensor, places: Tensor) -> Tensor:
        """Count × size: values at their places, zero elsewhere."""
        return values.new_zeros(self.count, self.size).scatter_(1, places, values)

    def mean(self, values: Tensor, places: Tensor, over: Mean) -> Tensor:
        """Count × size, of the values and places that ranks sent (ranks × count·k), added in rank order."""
        total = values.new_zeros(self.count, self.size)
        senders = torch.zeros_like(total)
        for own, at in zip(values, places, strict=True):
            at = at.view(self.count, -1)
            total.scatter_add_(1, at, own.view_as(at))
            senders.scatter_add_(1, at, torch.ones_like(own).view_as(at))
        return total / (senders.clamp_(min=1) if over == "senders" else len(values))
