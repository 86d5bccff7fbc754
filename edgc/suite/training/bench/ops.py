"""`edgc bench ops`: how fast the operations of an exchange are, against other ways to do them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from edgc.core.base.provenance import cpu_model, version
from edgc.core.ops import backend
from edgc.suite.training.bench import cases
from edgc.suite.training.bench.cases import Case
from edgc.suite.training.bench.rounds import Times, interleaved
from edgc.suite.training.bench.shapes import ShapeSet

RANKS = (32, 64)
Make = Callable[..., Case]


def measure(shape_set: ShapeSet, device: str, quick: bool, fail: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Rows of the benchmark, one per operation, rank and implementation.

    An implementation whose gate is not green is reported to `fail` and gets no row.
    """
    kernels = backend.missing(device) is None and device != "cpu"
    rounds, seconds = (3, 0.0) if quick else (7, 2.0)
    fastest = _copy_rate(shape_set, device)
    fixed = _fixed(device, shape_set)
    for op, rank, make in _operations(device, kernels):
        green = _gate(shape_set, op, rank, make, fail)
        case = make(shape_set.shapes)
        times = interleaved({n: w for n, w in case.work.items() if n in green}, device, rounds, seconds)
        for name, took in times.items():
            rate = case.moved / took.median / 1e9
            timed = {"op": op, "rank": rank, "implementation": name, "gb_per_s": rate, "copy_fraction": rate / fastest}
            yield fixed | timed | _milliseconds(took)
        del case  # before the next one is made


def _operations(device: str, kernels: bool) -> Iterator[tuple[str, int | None, Make]]:
    for rank in RANKS:
        yield "exchange-core", rank, partial(cases.exchange_case, device=device, kernels=kernels, rank=rank)
        for op in ("encode", "project", "decode"):
            yield op, rank, partial(cases.lowrank_case, op, device=device, kernels=kernels, rank=rank)
        make = partial(cases.orthonormalise_case, device=device, kernels=kernels, rank=rank)
        yield "orthonormalise", rank, make
    for op in ("moments", "moments-sampled", "histogram"):
        yield op, None, partial(cases.moments_case, op, device=device, kernels=kernels)
    yield "select", None, partial(cases.select_case, device=device, kernels=kernels)
    for code in ("int8", "int4", "sign"):
        yield f"quantize-{code}", None, partial(cases.quantize_case, code, device=device, kernels=kernels)


def _gate(shape_set: ShapeSet, op: str, rank: int | None, make: Make, fail: Callable[[str], None]) -> set[str]:
    """Implementations whose results are right on one matrix of each shape."""
    small = make(sorted(set(shape_set.shapes)), gated=True)
    green = set()
    for name, work in small.work.items():
        work()
        error = small.error(name)
        if error <= small.tolerance:
            green.add(name)
        else:
            at = f"{op} {shape_set.name}" + ("" if rank is None else f" rank {rank}")
            fail(f"{at}: {name} is wrong by {error:.2g} of the largest element, allowed {small.tolerance:g}: not timed")
    return green


def _copy_rate(shape_set: ShapeSet, device: str) -> float:
    """GB/s of a copy, read and written."""
    work = cases.copy_case(shape_set.shapes, device)
    elements = min(shape_set.numel, 1 << 26)
    return 8 * elements / interleaved(work, device, 9, 0.0)["copy"].median / 1e9


def _milliseconds(took: Times) -> dict[str, float]:
    return {"median_ms": 1e3 * took.median, "p20_ms": 1e3 * took.p20, "p80_ms": 1e3 * took.p80}


def _fixed(device: str, shape_set: ShapeSet) -> dict[str, Any]:
    """Columns that are equal in all rows of a shape set."""
    return {
        "shape_set": shape_set.name,
        "shape": shape_set.words,
        "dtype": "fp32",
        "device": cpu_model() if device == "cpu" else torch.cuda.get_device_name(),
        "threads": torch.get_num_threads(),
        "torch": version("torch"),
        "triton": version("triton") or "",
    }
