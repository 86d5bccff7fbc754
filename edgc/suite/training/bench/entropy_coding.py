"""What an entropy coder gets out of what ranks would send: gradients, low-rank factors, codes of lossy methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import Aggregator, NamedTensor
from edgc.core.aggregators.byte_planes import BytePlanes
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.turns import UnderWay
from edgc.core.policies.amounts import Amount, Bits, Rank, Ratio
from edgc.core.policies.policy import Decision
from edgc.suite.config import Method, Model, load
from edgc.suite.training.bench.overheard import Overheard
from edgc.suite.training.bench.recorded import Gradients, recorded
from edgc.suite.training.data.dataset import open_corpus

RANKS = 2
#: Methods whose messages are coded, and what each is told; they run in every step, so that residuals are real.
METHODS: Mapping[str, Amount] = {
    "powersgd": Rank(16), "int8": Bits(8), "int4": Bits(4), "onebit": Bits(1), "topk": Ratio(0.01),
}  # fmt: skip
RANDOM = 7.8  #: bits of order-0 entropy from which on a plane of bytes counts as random
LEVEL = 3  #: zstd's own default, for bytes as they lie
TIMES = 5  #: that coding is timed; the fastest counts

Rows = list[dict[str, Any]]
T = TypeVar("T")


class Sent(NamedTuple):
    """Something that a rank would send."""

    what: str
    values: Tensor  #: 1-D, in the precision they travel in
    elements: int  #: that they stand for


def study(model: Model, corpus: Path, steps: Sequence[int]) -> Rows:
    """Train `model`, and code what a rank of two would send in each of `steps` (counted from 1): a row a step and kind.

    Only matrices count. Keys: step, what; bytes an element: `raw`, by zstd as it lies (`zstd`), by zstd in byte planes
    (`planes`), and what an ideal coder of single bytes would make of each (`zstd_bound`, `planes_bound`); `random`:
    share of its bytes in planes of `RANDOM` bits of entropy or more; `encode`, `decode`: raw bytes a second of byte
    planes and zstd on one core.
    """
    coder = BytePlanes(load(Method, "lossless").aggregator.level)  # type: ignore[attr-defined]
    opened = open_corpus(corpus, model.seq_length, RANKS)
    aggregators = {name: [_aggregator(name) for _ in range(RANKS)] for name in METHODS}
    rows: Rows = []
    for number, found in enumerate(recorded(model, opened, RANKS, max(steps)), start=1):
        matrices = [{n: g for n, g in own.items() if g.ndim == 2} for own in found]
        heard = {name: _messages(aggregators[name], matrices, amount, number) for name, amount in METHODS.items()}
        if number in steps:
            rows += [{"step": number, "what": sent.what} | coded(sent, coder) for sent in _sent(matrices, heard)]
    return rows


def _aggregator(name: str) -> Aggregator:
    settings = load(Method, name).aggregator
    return AGGREGATORS[settings.name](settings)  # type: ignore[attr-defined]


def _messages(
    aggregators: Sequence[Aggregator], gradients: Sequence[Gradients], amount: Amount, step: int
) -> list[Tensor]:
    """What the first rank hands to collectives in one exchange."""

    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        bucket = [NamedTensor(name, gradient.clone()) for name, gradient in gradients[comm.rank].items()]
        overheard = Overheard(comm)
        UnderWay(aggregators[comm.rank].exchange(bucket, Decision(amount), overheard, step)).wait()
        return overheard.messages

    return run_ranks(len(gradients), body)[0]


def _sent(gradients: Sequence[Gradients], heard: Mapping[str, Sequence[Tensor]]) -> Iterator[Sent]:
    own = torch.cat([gradient.view(-1) for gradient in gradients[0].values()])
    mean = torch.stack([torch.cat([g.view(-1) for g in each.values()]) for each in gradients]).mean(0)
    for name, values in (("gradients", own), ("mean gradients", mean)):
        yield Sent(f"fp32 {name}", values, len(values))
        yield Sent(f"bf16 {name}", values.to(torch.bfloat16), len(values))
    for name, factor in zip(("P", "Q"), heard["powersgd"], strict=True):
        yield Sent(f"fp32 factors {name} of PowerSGD", factor.view(-1), factor.numel())
    for name, title in (("int8", "int8 codes"), ("int4", "int4 codes"), ("onebit", "one-bit codes")):
        yield Sent(title, heard[name][0].view(-1), len(own))
    indices, values = heard["topk"][0].view(torch.int32).chunk(2)  # where, which rises in a tensor, and what
    yield Sent("fp32 values of Top-K", values.view(torch.float32), len(values))
    yield Sent("int32 indices of Top-K", indices, len(values))
    yield Sent("int32 gaps between indices of Top-K", indices.diff(prepend=indices.new_zeros(1)), len(values))


def coded(sent: Sent, coder: BytePlanes) -> dict[str, float]:
    """The numbers of one row of `study`."""
    values, raw = sent.values, sent.values.numel() * sent.values.element_size()
    (message, lengths), encoded = _fastest(lambda: coder.encode(values))
    _, decoded = _fastest(lambda: coder.decode(message, lengths, len(values), values.dtype))
    as_it_lies, _ = BytePlanes(LEVEL).encode(values.view(torch.uint8))
    of_planes = [_entropy(plane) for plane in values.view(torch.uint8).view(len(values), -1).T]
    return {
        "raw": raw / sent.elements,
        "zstd": len(as_it_lies) / sent.elements,
        "planes": len(message) / sent.elements,
        "zstd_bound": _entropy(values.view(torch.uint8)) / 8 * raw / sent.elements,
        "planes_bound": sum(of_planes) / 8 * len(values) / sent.elements,
        "random": sum(bits >= RANDOM for bits in of_planes) / len(of_planes),
        "encode": raw / encoded,
        "decode": raw / decoded,
    }


def _entropy(data: Tensor) -> float:
    """Bits a byte of order 0: of the bytes' frequencies, whatever their order."""
    counts = np.bincount(data.numpy(), minlength=256)
    shares = counts[counts > 0] / len(data)
    return float(-(shares * np.log2(shares)).sum())


def _fastest(work: Callable[[], T]) -> tuple[T, float]:
    """What `work` gives, and its least seconds of a few times."""
    runs = [_timed(work) for _ in range(TIMES)]
    return runs[-1][0], min(took for _, took in runs)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin
