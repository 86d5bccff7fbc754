"""What is timed: each operation on all matrices of a stage, by every implementation, and what a right result is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from edgc.core.exchange.entropy import sample_stride
from edgc.core.ops.copies import copy_all
from edgc.core.ops.lowrank import reference as lowrank
from edgc.core.ops.moments import reference as moments
from edgc.core.ops.select import Pool
from edgc.suite.training.bench import rivals
from edgc.suite.training.bench.rivals import adjacent

Shapes = Sequence[tuple[int, int]]
Work = dict[str, Callable[[], Any]]
Pairs = Iterator[tuple[Tensor, Tensor]]

OPS = ("lowrank", "moments", "orthonormalise", "select")
SAMPLED = 0.25  #: EDGC's element rate β
KEPT = 0.01  #: share of the elements that `select` takes


@dataclass(frozen=True)
class Case:
    """One operation on matrices of the given shapes."""

    work: Work  #: by implementation
    moved: float  #: bytes that have to be read and written at least
    tolerance: float  #: of `error`
    changed: Sequence[Tensor]  #: what a call overwrites of its input
    pairs: Callable[[str, Any, list[Tensor]], Pairs]
    """What an implementation found, and what is right in float64: from its name, what its call returned, and what
    `changed` held before."""

    def error(self, name: str) -> float:
        """Largest difference of one call's results, over the largest element. The input is as before."""
        before = [tensor.clone() for tensor in self.changed]
        returned = self.work[name]()
        worst = max(_relative(found, exact) for found, exact in self.pairs(name, returned, before))
        copy_all(self.changed, before)
        return worst


def implementations(kernels: bool) -> dict[str, dict[str, ModuleType]]:
    """Modules of each implementation of ours by operation; Triton's with `kernels`."""
    kinds = {"edgc-torch": "reference"} | ({"edgc-triton": "triton"} if kernels else {})
    return {name: {op: import_module(f"edgc.core.ops.{op}.{kind}") for op in OPS} for name, kind in kinds.items()}


def exchange_case(shapes: Shapes, device: str, kernels: bool, rank: int) -> Case:
    """encode + orthonormalise + project + decode, and Q kept for the next step: what an exchange costs beside its
    collectives."""
    (memory, grads), (_, errors) = adjacent(shapes, device, 1), adjacent(shapes, device, 2)
    lefts, rights = _factors(shapes, device, rank)
    starts = [right.clone() for right in rights]

    def core(ops: dict[str, ModuleType]) -> None:
        wholes = lowrank.encode(grads, errors, starts, lefts)
        bases = ops["orthonormalise"].orthonormalise(lefts)
        lowrank.project(wholes, bases, rights)
        ops["lowrank"].decode(bases, rights, grads, errors)
        copy_all(starts, rights)

    work: Work = {name: partial(core, ops) for name, ops in implementations(kernels).items()}
    work |= {"torch-hook": rivals.torch_hook(memory, grads, rank)}
    work |= {rival.__name__: partial(rival, grads, errors, starts) for rival in (rivals.loop, rivals.eager)}

    def pairs(name: str, _: Any, before: list[Tensor]) -> Pairs:
        thirds = (before[i * len(grads) : (i + 1) * len(grads)] for i in range(3))
        for found, left, grad, lost, start in zip(grads, errors, *thirds, strict=True):
            whole = spanned = grad.double() + lost.double()
            if name == "torch-hook":  # it starts from random numbers of its own, without an error: take its own span
                whole, spanned = grad.double(), found.double()
            basis = torch.linalg.qr(spanned @ start.double())[0]
            sent = basis @ (basis.mT @ whole)
            yield found, sent
            if name != "torch-hook":
                yield left, whole - sent

    return Case(work, 28.0 * _numel(shapes), 1e-3, [*grads, *errors, *starts], pairs)


def lowrank_case(op: str, shapes: Shapes, device: str, kernels: bool, rank: int) -> Case:
    """One of encode and project, which are torch's, and decode."""
    (_, grads), (_, errors) = adjacent(shapes, device, 3), adjacent(shapes, device, 4)
    lefts, rights = _factors(shapes, device, rank)
    outs = [torch.empty_like(part) for part in (lefts if op == "encode" else rights)]
    passes, call = {
        "encode": (3, lambda _: lowrank.encode(grads, errors, rights, outs)),
        "project": (1, lambda _: lowrank.project(errors, lefts, outs)),
        "decode": (3, lambda ops: ops.decode(lefts, rights, grads, errors)),
    }[op]

    def pairs(_: str, __: Any, before: list[Tensor]) -> Pairs:
        for i in range(len(grads)):
            grad, lost = before[i].double(), before[len(grads) + i].double()
            if op == "encode":
                yield errors[i], grad + lost
                yield outs[i], (grad + lost) @ rights[i].double()
            elif op == "project":
                yield outs[i], lost.mT @ lefts[i].double()
            else:
                yield grads[i], lefts[i].double() @ rights[i].double().mT
                yield errors[i], lost - lefts[i].double() @ rights[i].double().mT

    work = _ours("lowrank", call, kernels and op == "decode")
    return Case(work, 4.0 * passes * _numel(shapes), 1e-4, [*grads, *errors], pairs)


def orthonormalise_case(shapes: Shapes, device: str, kernels: bool, rank: int) -> Case:
    """Orthonormal bases of all left factors, read and written once at least."""
    factors, _ = _factors(shapes, device, rank)
    work = _ours("orthonormalise", lambda ops: ops.orthonormalise(factors), kernels)
    work["loop"] = lambda: [torch.linalg.qr(factor)[0] for factor in factors]

    def pairs(_: str, bases: list[Tensor], __: list[Tensor]) -> Pairs:
        for factor, basis in zip(factors, map(Tensor.double, bases), strict=True):
            yield basis.mT @ basis, torch.eye(rank, dtype=torch.float64, device=device)
            yield basis @ (basis.mT @ factor.double()), factor.double()

    return Case(work, 4.0 * 2 * rank * sum(m for m, _ in shapes), 1e-4, [], pairs)


def moments_case(op: str, shapes: Shapes, device: str, kernels: bool) -> Case:
    """Moments of every element, or of EDGC's sample; or the histogram of every element."""
    _, grads = adjacent(shapes, device, 5)
    strides = [sample_stride(shape, SAMPLED) if op == "moments-sampled" else 1 for shape in shapes]
    of, both = moments.moments(grads, strides), op == "histogram"

    def call(ops: ModuleType) -> Tensor:
        return ops.histogram(grads, strides, of) if both else ops.moments(grads, strides).deviation

    def pairs(_: str, rows: Tensor, __: list[Tensor]) -> Pairs:
        for i, (grad, row) in enumerate(zip(grads, rows.cpu(), strict=True)):
            flat = grad.double().cpu().view(-1)
            if both:  # the share of the elements up to each bin
                counts = torch.histc(flat, 1000, float(of.minimum[i]), float(of.maximum[i]))
                yield row.cumsum(0) / len(flat), counts.cumsum(0) / len(flat)
            else:
                yield row, flat[torch.arange(len(flat)) // moments.RUN % strides[i] == 0].std(correction=0)

    read = sum(4 * moments.sample_size(m * n, stride) for (m, n), stride in zip(shapes, strides, strict=True))
    return Case(_ours("moments", call, kernels), float(read), 1e-3 if both else 1e-5, [], pairs)


def select_case(shapes: Shapes, device: str, kernels: bool) -> Case:
    """The largest 1 % of every matrix of G + E, which leave E."""
    (_, grads), (_, errors) = adjacent(shapes, device, 6), adjacent(shapes, device, 7)
    pools = [Pool(g, e, max(1, int(KEPT * g.numel()))) for g, e in zip(grads, errors, strict=True)]

    def pairs(_: str, chosen: list[Any], before: list[Tensor]) -> Pairs:
        for pool, selection, grad, error, lost in zip(pools, chosen, grads, errors, before, strict=True):
            whole = (grad + lost).view(-1)
            rest = whole.clone()
            rest[whole.abs().topk(pool.k).indices] = 0
            yield error.view(-1), rest.double()
            yield selection.values, whole[selection.indices].double()

    return Case(_ours("select", lambda ops: ops.select(pools), kernels), 12.0 * _numel(shapes), 1e-6, errors, pairs)


def _ours(op: str, call: Callable[[ModuleType], Any], kernels: bool) -> Work:
    return {name: partial(call, ops[op]) for name, ops in implementations(kernels).items()}


def _factors(shapes: Shapes, device: str, rank: int) -> tuple[list[Tensor], list[Tensor]]:
    """Normal numbers (m×r and n×r) for each matrix."""
    lefts, rights = [(m, rank) for m, _ in shapes], [(n, rank) for _, n in shapes]
    return adjacent(lefts, device, 0)[1], adjacent(rights, device, 0)[1]


def _numel(shapes: Shapes) -> int:
    return sum(m * n for m, n in shapes)


def _relative(found: Tensor, exact: Tensor) -> float:
    """Largest difference over the largest element; infinite where something is not finite."""
    worst = float((found.double() - exact).abs().max() / exact.abs().max())
    return worst if worst == worst else float("inf")
