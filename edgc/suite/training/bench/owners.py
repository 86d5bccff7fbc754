"""What it takes to bring recorded gradients to the ranks that own them, method by method: bytes, error, seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import Aggregator, NamedTensor
from edgc.core.aggregators.sketch import Sketch
from edgc.core.comm import Sharded
from edgc.core.comm.layout import cut_evenly
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.turns import UnderWay
from edgc.core.policies.policy import Decision
from edgc.suite.config import Method, Model, load
from edgc.suite.training.bench.recorded import Gradients, recorded
from edgc.suite.training.data.dataset import open_corpus

#: FSDP's own precision first, what its users take in its place, and what a sketch competes with.
METHODS = ("dense", "dense_bf16", "int8", "int4", "loco", "zeropp", "bitmap_values", "tagc", "tagc_released")
TIMED = 3  #: last steps whose seconds count, the least of them


class Contender:
    """A method in a group of ranks: an aggregator for each of them, with its error feedback."""

    def __init__(self, name: str, layout: Sharded) -> None:
        method = load(Method, name)
        changes = {"min_numel": 0} if "min_numel" in type(method.aggregator).model_fields else {}
        settings = method.aggregator.model_copy(update=changes)
        self.name, self._layout = name, layout
        self._decision = Decision(method.policy.largest)
        self._aggregators: list[Aggregator] = [AGGREGATORS[settings.name](settings) for _ in layout.ranges]  # type: ignore[attr-defined]
        for aggregator in self._aggregators:
            aggregator.layout = layout
        self._seconds: list[tuple[float, float]] = []
        self.row: dict[str, Any] = {}

    def exchange(self, gradients: Sequence[Gradients], step: int) -> None:
        """Bring one step's gradients to their owners; `row` is then about this step."""
        given = [self._given(aggregator, own) for aggregator, own in zip(self._aggregators, gradients, strict=True)]
        right = {name: torch.stack([own[name] for own in given]).mean(0).view(-1) for name in gradients[0]}
        names, elements = [*right], sum(map(len, right.values()))

        def body(comm: LoopbackCommunicator) -> tuple[Tensor, Tensor, float, float, float]:
            aggregator, launched = self._aggregators[comm.rank], _not_counting(comm)
            bucket = [NamedTensor(name, gradient.clone()) for name, gradient in gradients[comm.rank].items()]
            begin = time.thread_time()
            under_way = UnderWay(aggregator.exchange(bucket, self._decision, comm, step))
            encoded = time.thread_time() - begin - launched()
            under_way.wait()
            decoded = time.thread_time() - begin - launched() - encoded
            out = {t.name: t.tensor.view(-1) for t in bucket}
            pieces = self._layout.owned(comm.rank, names)
            got, wanted = (torch.cat([each[p.name][p.start : p.stop] for p in pieces]) for each in (out, right))
            return got, wanted, comm.ledger.take()["gradient"].wire_bytes, encoded, decoded

        got, wanted, wire, encode, decode = zip(*run_ranks(len(gradients), body), strict=True)
        exact = torch.cat(wanted)
        self._seconds.append((max(encode), max(decode)))
        self.row = {
            "method": self.name,
            "ranks": len(gradients),
            "elements": elements,
            "bytes": sum(wire) / len(wire) / elements,
            "error": float((torch.cat(got) - exact).norm() / exact.norm()),
        } | self._recovery()
        for what, seconds in zip(("encode", "decode"), zip(*self._seconds[-TIMED:], strict=True), strict=True):
            self.row[what] = min(seconds)

    def _given(self, aggregator: Aggregator, gradients: Gradients) -> Gradients:
        """What a rank has to tell: its gradients, and what error feedback kept."""
        kept = {name: aggregator.residual(name) for name in gradients}
        return {n: g if (e := kept[n]) is None else g + e.view_as(g) for n, g in gradients.items()}

    def _recovery(self) -> dict[str, float]:
        """Of sketches: the share of elements that any rank sent, and the share of these that did not come out."""
        found = [a.last for a in self._aggregators if isinstance(a, Sketch) and a.last is not None]
        if not found:
            return {}
        union = sum(last.union for last in found)
        return {"union": union / sum(last.elements for last in found), "left": sum(last.left for last in found) / union}


def study(model: Model, corpus: Path, ranks: Sequence[int], steps: int) -> list[dict[str, Any]]:
    """Train `model` for so many steps and bring each step's gradients to their owners in groups of `ranks`.

    Only tensors that `tagc` compresses count, cut evenly among the ranks. A row for each method and group, of the last
    step. Keys: method, ranks, elements; `bytes` an element that a rank sends on the wire, the mean over ranks; `error`
    ‖output − mean of what ranks had to tell‖ / ‖that mean‖, of gradients and error feedback; `union`, `left` (see
    `Contender`); `encode`, `decode` seconds of one core for all elements, of the slowest rank.
    """
    smallest = load(Method, "tagc").aggregator.min_numel  # type: ignore[attr-defined]
    contenders: dict[int, list[Contender]] = {}
    opened = open_corpus(corpus, model.seq_length, max(ranks))
    for step, found in enumerate(recorded(model, opened, max(ranks), steps)):
        large = [{n: g for n, g in own.items() if g.numel() >= smallest} for own in found]
        for size in ranks:
            layout = cut_evenly({name: g.numel() for name, g in large[0].items()}, size)
            for contender in contenders.setdefault(size, [Contender(name, layout) for name in METHODS]):
                contender.exchange(large[:size], step)
    return [contender.row for size in ranks for contender in contenders[size]]


def _not_counting(comm: LoopbackCommunicator) -> Any:
    """A function that tells the seconds this thread has spent in collectives so far: threads are no network."""
    launch, spent = comm._launch, [0.0]

    def timed(*arguments: Any, **options: Any) -> Any:
        begin = time.thread_time()
        done = launch(*arguments, **options)
        spent[0] += time.thread_time() - begin
        return done

    comm._launch = timed  # type: ignore[method-assign]
    return lambda: spent[0]
