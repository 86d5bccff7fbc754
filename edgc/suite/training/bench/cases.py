"""What is timed: each operation on all matrices of a stage, by every implementation, with its correctness gate.

A case is made for a list of shapes. Its gate is a case with `gated`, which keeps what it began with, of one matrix of
each shape: every implementation runs once, before anything is timed, and is held against float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from edgc.core.exchange.entropy import sample_stride
from edgc.core.ops.copies import copy_all
from edgc.core.ops.moments import reference as moments
from edgc.core.ops.quantize import reference as quantize
from edgc.core.ops.select import Pool
from edgc.core.ops.select import reference as select
from edgc.suite.training.bench import exchange_core
from edgc.suite.training.bench.apart import torch_hook_apart
from edgc.suite.training.bench.exchange_core import adjacent

Shapes = Sequence[tuple[int, int]]
Work = dict[str, Callable[[], object]]

OPS = ("lowrank", "moments", "orthonormalise", "quantize", "select")
SAMPLED = 0.25  #: EDGC's element rate β
KEPT = 0.01  #: share of the elements that `select` takes


class Case(NamedTuple):
    """One operation on matrices of the given shapes."""

    work: Work  #: by implementation
    moved: float  #: bytes that have to be read and written at least
    error: Callable[[str], float]  #: of an implementation that has run once, relative to the largest element
    tolerance: float


def implementations(kernels: bool) -> dict[str, dict[str, ModuleType]]:
    """Modules of each implementation of ours by operation; Triton's with `kernels`."""
    kinds = {"edgc-torch": "reference"} | ({"edgc-triton": "triton"} if kernels else {})
    return {name: {op: import_module(f"edgc.core.ops.{op}.{kind}") for op in OPS} for name, kind in kinds.items()}


def exchange_case(shapes: Shapes, device: str, kernels: bool, rank: int, gated: bool = False) -> Case:
    """encode + orthonormalise + project + decode, and Q kept for the next step: what an exchange costs beside its
    collectives."""
    memory, grads = adjacent(shapes, device, 1)
    _, errors = adjacent(shapes, device, 2)
    starts = _normal([(n, rank) for _, n in shapes], device)
    first = [(g.clone(), e.clone(), s.clone()) for g, e, s in zip(grads, errors, starts, strict=True)] if gated else []

    def core(ops: dict[str, ModuleType]) -> Callable[[], object]:
        lefts = _normal([(m, rank) for m, _ in shapes], device)
        rights = _normal([(n, rank) for _, n in shapes], device)

        def run() -> None:
            wholes = ops["lowrank"].encode(grads, errors, starts, lefts)
            bases = ops["orthonormalise"].orthonormalise(lefts)
            ops["lowrank"].project(wholes, bases, rights)
            ops["lowrank"].decode(bases, rights, wholes, grads, errors, 0, [0] * len(grads))
            copy_all(starts, rights)

        return run

    work: Work = {name: core(ops) for name, ops in implementations(kernels).items()}
    if device == "cpu":
        work["torch-hook"] = torch_hook_apart(memory, shapes, rank)
    else:
        work["torch-hook"] = exchange_core.torch_hook(memory, grads, rank)
    work["loop"] = exchange_core.loop(grads, errors, starts)
    work["eager"] = exchange_core.eager(grads, errors, starts)

    def error(name: str) -> float:
        worst = 0.0
        for (grad, lost, start), found, left, kept in zip(first, grads, errors, starts, strict=True):
            if name == "torch-hook":  # it starts from random numbers of its own, without an error: take its own span
                basis, whole = torch.linalg.qr(found.double() @ start.double())[0], grad.double()
            else:
                whole = grad.double() + lost.double()
                basis = torch.linalg.qr(whole @ start.double())[0]
                worst = max(worst, _relative(left, whole - basis @ (basis.mT @ whole)))
            worst = max(worst, _relative(found, basis @ (basis.mT @ whole)))
            for changed, before in ((found, grad), (left, lost), (kept, start)):
                changed.copy_(before)
        return worst

    return Case(work, 28.0 * sum(m * n for m, n in shapes), error, 1e-3)


def lowrank_case(op: str, shapes: Shapes, device: str, kernels: bool, rank: int, gated: bool = False) -> Case:
    """One of encode, project and decode."""
    _, grads = adjacent(shapes, device, 3)
    _, errors = adjacent(shapes, device, 4)
    first = [(g.clone(), e.clone()) for g, e in zip(grads, errors, strict=True)] if gated else []
    lefts, rights = _normal([(m, rank) for m, _ in shapes], device), _normal([(n, rank) for _, n in shapes], device)
    sources = rights if op == "encode" else lefts
    outs = [torch.empty_like(part) for part in (lefts if op == "encode" else rights)]
    streams = [0] * len(grads)
    runs = {
        "encode": lambda ops: lambda: ops.encode(grads, errors, rights, outs),
        "project": lambda ops: lambda: ops.project(errors, lefts, outs),
        "decode": lambda ops: lambda: ops.decode(lefts, rights, errors, grads, errors, 0, streams),
    }
    work: Work = {name: runs[op](ops["lowrank"]) for name, ops in implementations(kernels).items()}

    def error(name: str) -> float:
        worst = 0.0
        for i, (grad, lost) in enumerate(first):
            if op == "decode":
                sent = lefts[i].double() @ rights[i].double().mT
                worst = max(worst, _relative(grads[i], sent), _relative(errors[i], lost.double() - sent))
            else:
                whole = grad.double() + lost.double() if op == "encode" else lost.double().mT
                if op == "encode":
                    worst = max(worst, _relative(errors[i], whole))
                worst = max(worst, _relative(outs[i], whole @ sources[i].double()))
            grads[i].copy_(grad)
            errors[i].copy_(lost)
        return worst

    passes = {"encode": 3, "project": 1, "decode": 3}[op]
    return Case(work, 4.0 * passes * sum(m * n for m, n in shapes), error, 1e-4)


def orthonormalise_case(shapes: Shapes, device: str, kernels: bool, rank: int, gated: bool = False) -> Case:
    """Orthonormal bases of all left factors, read and written once at least."""
    factors = _normal([(m, rank) for m, _ in shapes], device)
    results: dict[str, list[Tensor]] = {}

    def run(name: str, ops: dict[str, ModuleType]) -> Callable[[], object]:
        def call() -> None:
            results[name] = ops["orthonormalise"].orthonormalise(factors)

        return call

    def error(name: str) -> float:
        worst = 0.0
        for factor, basis in zip(factors, results[name], strict=True):
            exact = basis.double()
            eye = torch.eye(rank, dtype=torch.float64, device=device)
            kept = exact @ (exact.mT @ factor.double())
            worst = max(worst, float((exact.mT @ exact - eye).abs().max()), _relative(kept, factor.double()))
        return worst

    work: Work = {name: run(name, ops) for name, ops in implementations(kernels).items()}
    work["loop"] = lambda: results.update(loop=[torch.linalg.qr(factor)[0] for factor in factors])
    return Case(work, 4.0 * 2 * rank * sum(m for m, _ in shapes), error, 1e-4)


def moments_case(op: str, shapes: Shapes, device: str, kernels: bool, gated: bool = False) -> Case:
    """Moments of every element, or of EDGC's sample; or the histogram of every element."""
    _, grads = adjacent(shapes, device, 5)
    strides = [sample_stride(shape, SAMPLED) if op == "moments-sampled" else 1 for shape in shapes]
    of = moments.moments(grads, strides)
    results: dict[str, Tensor] = {}

    def run(name: str, ops: ModuleType) -> Callable[[], object]:
        def call() -> None:
            both = op == "histogram"
            results[name] = ops.histogram(grads, strides, of) if both else ops.moments(grads, strides).deviation

        return call

    def error(name: str) -> float:
        worst = 0.0
        for i, (grad, stride) in enumerate(zip(grads, strides, strict=True)):
            if op == "histogram":
                edges = grad.double().cpu().view(-1)
                exact = torch.histc(edges, 1000, float(of.minimum[i]), float(of.maximum[i]))
                worst = max(worst, float((results[name][i].cpu() - exact).abs().sum() / len(edges)))
            else:
                flat = grad.double().cpu().view(-1)
                taken = torch.arange(len(flat)) // moments.RUN % stride == 0
                worst = max(worst, _relative(results[name][i].cpu(), flat[taken].std(correction=0)))
        return worst

    work: Work = {name: run(name, ops["moments"]) for name, ops in implementations(kernels).items()}
    read = sum(4 * moments.sample_size(m * n, stride) for (m, n), stride in zip(shapes, strides, strict=True))
    return Case(work, float(read), error, 1e-3 if op == "histogram" else 1e-5)


def select_case(shapes: Shapes, device: str, kernels: bool, gated: bool = False) -> Case:
    """The largest 1 % of every matrix of G + E, which leave E."""
    _, grads = adjacent(shapes, device, 6)
    _, errors = adjacent(shapes, device, 7)
    first = [(g.clone(), e.clone()) for g, e in zip(grads, errors, strict=True)] if gated else []
    pools = [Pool([g], [e], max(1, int(KEPT * g.numel()))) for g, e in zip(grads, errors, strict=True)]
    results: dict[str, list[select.Selection]] = {}

    def run(name: str, ops: ModuleType) -> Callable[[], object]:
        def call() -> None:
            results[name] = ops.select(pools)

        return call

    def error(name: str) -> float:
        worst = 0.0
        for i, (grad, lost) in enumerate(first):
            whole = grad + lost
            rest = whole.clone().view(-1)
            rest[whole.view(-1).abs().topk(pools[i].k).indices] = 0
            worst = max(worst, _relative(errors[i].view(-1), rest.double()))
            worst = max(worst, _relative(results[name][i].values, whole.view(-1)[results[name][i].indices].double()))
            errors[i].copy_(lost)
        return worst

    work: Work = {name: run(name, ops["select"]) for name, ops in implementations(kernels).items()}
    return Case(work, 12.0 * sum(m * n for m, n in shapes), error, 1e-6)


def quantize_case(code: quantize.Code, shapes: Shapes, device: str, kernels: bool, gated: bool = False) -> Case:
    """Pack and unpack again."""
    _, grads = adjacent(shapes, device, 8)
    outs = [torch.empty_like(grad) for grad in grads]
    streams = list(range(len(grads)))

    def run(ops: ModuleType) -> Callable[[], object]:
        return lambda: ops.dequantize(outs, *ops.quantize(grads, code, 9, streams), code)

    def error(name: str) -> float:
        if code == "sign":
            exact = [grad.double().sign() * grad.double().abs().mean() for grad in grads]
            return max(_relative(out, mean) for out, mean in zip(outs, exact, strict=True))
        found = (out.double() - grad.double() for out, grad in zip(outs, grads, strict=True))
        steps = (grad.abs().max() / quantize.LEVELS[code] for grad in grads)
        beyond = [float(lost.abs().max() / step) - 1 for lost, step in zip(found, steps, strict=True)]
        return max(0.0, *beyond)  # of a level

    packed = sum(quantize.packed_bytes(m * n, code) for m, n in shapes)
    work: Work = {name: run(ops["quantize"]) for name, ops in implementations(kernels).items()}
    return Case(work, 8.0 * sum(m * n for m, n in shapes) + 2 * packed, error, 1e-4)


def copy_case(shapes: Shapes, device: str) -> Work:
    """What memory can do: one copy of as many elements as a stage has, at most 256 MiB."""
    source = torch.zeros(min(sum(m * n for m, n in shapes), 1 << 26), device=device)
    target = torch.empty_like(source)
    return {"copy": lambda: target.copy_(source)}


def _normal(shapes: Shapes, device: str) -> list[Tensor]:
    return adjacent(shapes, device, 0)[1]


def _relative(found: Tensor, exact: Tensor) -> float:
    """Largest difference over the largest element; infinite where something is not finite."""
    worst = float((found.double() - exact).abs().max() / exact.abs().max())
    return worst if worst == worst else float("inf")
