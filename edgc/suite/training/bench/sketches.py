"""What sketches make of recorded gradients: unions, recovery and bytes, beside bf16 and plainer codes of the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import torch

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.sketch import Sketch
from edgc.core.aggregators.sketch_settings import SketchSettings
from edgc.core.aggregators.threshold import from_table
from edgc.core.comm.communicator import wire_factor
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.turns import UnderWay
from edgc.core.ops.bitmap import packed_size
from edgc.core.ops.select import Pool, select
from edgc.core.policies.amounts import Ratio
from edgc.core.policies.policy import Decision
from edgc.suite.config import Method, Model, load
from edgc.suite.training.bench.recorded import Gradients, recorded
from edgc.suite.training.data.dataset import open_corpus

METHODS = ("lhc", "tagc", "tagc_released")
RATIOS = (0.2, 0.05, 0.01)  #: TAGC's default, LHC's demo, and Top-K's here
LEAST = 1 / 0.818  #: cells an element, the limit for three hashes: a 2-core of a random 3-hypergraph (Molloy 2005)
OFF = 1e-3  #: of the root mean square of the union's averages; the rounding of a long chain of cells is far below

Rows = list[dict[str, Any]]


class Kept(NamedTuple):
    """A rank's error feedback before the last step, and what it selects in that step: one vector a tensor."""

    errors: Gradients
    sent: Gradients


def study(model: Model, corpus: Path, ranks: Sequence[int], steps: int) -> Rows:
    """Train `model` for so many steps and exchange the last gradients in groups of `ranks`: a row a group, ratio and
    way to send them.

    Only tensors that `tagc` compresses count. Residuals are those of an exchange that loses nothing it was given.

    Keys: ranks, ratio, method; `sent` share of the elements that a rank sends, `union` share that any sends. Of what
    was exchanged: `cells` an element of the union, `left` share of the union whose average is off by more than `OFF`,
    `error` ‖output − mean sent‖ / ‖mean sent‖. Bytes an element that a rank sends on the wire: `replicated`, the
    average is needed on all ranks; `to_owner`, each element's on one.
    """
    settings = {name: load(Method, name).aggregator for name in METHODS}
    smallest = settings["tagc"].min_numel  # type: ignore[attr-defined]
    residuals: dict[tuple[float, bool], list[Gradients]] = {}
    last: list[Gradients] = []
    kept: dict[tuple[float, bool], list[Kept]] = {}
    opened = open_corpus(corpus, model.seq_length, max(ranks))
    for found in recorded(model, opened, max(ranks), steps):
        last = [{n: g for n, g in own.items() if g.numel() >= smallest} for own in found]
        for key in ((ratio, table) for ratio in RATIOS for table in (False, True)):
            before = residuals.setdefault(key, [{n: torch.zeros_like(g) for n, g in own.items()} for own in last])
            kept[key] = [_kept(own, errors, *key) for own, errors in zip(last, before, strict=True)]
    rows: Rows = []
    for size in ranks:
        for ratio in RATIOS:
            for name in METHODS:
                own: SketchSettings = settings[name].model_copy(update={"min_numel": 0})  # type: ignore[attr-defined]
                group = kept[ratio, own.threshold == "table"][:size]
                rows.append(
                    {"ranks": size, "ratio": ratio, "method": name} | _exchanged(own, last[:size], group, ratio)
                )
            union, sent = (next(r[key] for r in reversed(rows) if r["method"] == "lhc") for key in ("union", "sent"))
            rows += [{"ranks": size, "ratio": ratio} | row for row in arithmetic(size, sent, union)]
    return rows


def _kept(gradients: Gradients, errors: Gradients, ratio: float, table: bool) -> Kept:
    """`errors` become those after the step."""
    before, sent = {name: error.clone() for name, error in errors.items()}, {}
    for name, gradient in gradients.items():
        pool = Pool([gradient], [errors[name]], ceil(round(ratio * gradient.numel(), 6)))
        chosen = from_table(pool) if table else select([pool])[0]
        sent[name] = torch.zeros(gradient.numel()).index_add_(0, chosen.indices, chosen.values)
    return Kept(before, sent)


def _exchanged(
    settings: SketchSettings, gradients: Sequence[Gradients], kept: Sequence[Kept], ratio: float
) -> dict[str, Any]:
    """One exchange by the aggregator itself, on as many threads as ranks; bytes are the ledger's."""
    elements = sum(g.numel() for g in gradients[0].values())

    def body(comm: LoopbackCommunicator) -> tuple[Gradients, float]:
        aggregator = Sketch(settings)
        if settings.keeps_residual:
            aggregator.load_state_dict({"residuals": kept[comm.rank].errors})
        bucket = [NamedTensor(name, gradient.clone()) for name, gradient in gradients[comm.rank].items()]
        UnderWay(aggregator.exchange(bucket, Decision(Ratio(ratio)), comm, 0)).wait()
        return {t.name: t.tensor for t in bucket}, comm.ledger.take()["gradient"].wire_bytes

    (output, wire), *_ = run_ranks(len(gradients), body)
    sent = {name: torch.stack([own.sent[name] for own in kept]) for name in output}
    there = torch.cat([(each != 0).any(0) for each in sent.values()])
    right = torch.cat([each.mean(0) for each in sent.values()])
    error = torch.cat([output[name].view(-1) for name in sent]) - right
    union, typical = int(there.sum()), right[there].square().mean().sqrt()
    shapes = {name: tuple(gradient.shape) for name, gradient in gradients[0].items()}
    phases = Sketch(settings).workload(shapes, Decision(Ratio(ratio)), len(gradients)).phases
    (bitmap, sketch) = phases[0].messages
    told = packed_size(elements) if settings.error_feedback == "all" else 0  # which of its elements an owner got
    return {
        "sent": sum(int((each != 0).sum()) for each in sent.values()) / len(gradients) / elements,
        "union": union / elements,
        "cells": sketch.payload / 4 / union,
        "left": float((error[there].abs() > OFF * typical).float().mean()),
        "error": float(error.norm() / right.norm()),
        "replicated": wire / elements,
        "to_owner": wire_factor("reduce_scatter", len(gradients)) * (bitmap.payload + sketch.payload + told) / elements,
    }


def arithmetic(size: int, sent: float, union: float) -> Iterator[dict[str, Any]]:
    """Bytes an element in a group of `size`: of a sketch as small as one can be, if the union were known beforehand;
    dense in bf16; Top-K's pairs, gathered; a bitmap and the values of its elements, sent to the owner of a part, and
    that part's average gathered."""
    share, every = wire_factor("reduce_scatter", size), {"sent": sent, "union": union}
    least = (1 / 8 + 4 * LEAST * union) * share
    yield every | {"method": "least", "cells": LEAST, "left": 0.0, "to_owner": least, "replicated": 2 * least}
    yield {"method": "bf16", "to_owner": 2 * share, "replicated": 4 * share, "sent": 1.0, "union": 1.0}
    yield every | {"method": "pairs", "to_owner": 8 * sent * share, "replicated": 8 * sent * (size - 1)}
    for name, width in (("bitmap_fp32", 4), ("bitmap_int8", 1)):
        there, back = 1 / 8 + width * sent, 1 / 8 + width * union
        yield every | {"method": name, "to_owner": there * share, "replicated": (there + back) * share}
