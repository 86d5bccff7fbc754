"""`edgc bench ops`: how fast the operations of an exchange are, against other ways to do them.

Timing is interleaved: every implementation once a round, so that a disturbance hits all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_json, write_text
from edgc.core.ops import backend
from edgc.suite.cluster.parameters import layer_matrices
from edgc.suite.config import Model, load
from edgc.suite.config.provenance import cpu_model, manifest_base, version
from edgc.suite.training.bench import cases
from edgc.suite.training.bench.cases import Case

COLUMNS = ["op", "shape_set", "shape", "dtype", "rank", "implementation", "median_ms", "p20_ms", "p80_ms"]
COLUMNS += ["gb_per_s", "copy_fraction", "device", "threads", "torch", "triton"]
RANKS = (32, 64)
Make = Callable[..., Case]

#: Name, model, pipeline stages and tensor-parallel degree: the paper's, and a small model whole.
STAGES = (
    ("gpt2-124m", "gpt2-124m", 1, 1),
    ("gpt2-2.5b/TP4", "gpt2-2.5b", 4, 4),
    ("gpt2-12.1b/TP4", "gpt2-12.1b", 4, 4),
)


def run(device: str, out: Path | None, quick: bool) -> int:
    """Measure, print and write. Returns the exit code: 1 if a gate was not green. Raises `UserError` on bad input."""
    if device not in ("cpu", "cuda"):
        raise UserError(f"--device {device}: allowed: cpu, cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "--device cuda: torch sees no GPU here; `edgc doctor` says what is installed, or use --device cpu"
        )
    if out is not None:  # first: of what was there when it began
        write_json(out.with_suffix(".manifest.json"), manifest_base(device))  # type: ignore[arg-type]
    failures: list[str] = []
    rows = []
    for shape_set in shape_sets()[: 1 if quick else None]:
        rows.extend(measure(shape_set, device, quick, failures.append))
        data = pd.DataFrame(rows, columns=COLUMNS).astype({"rank": "Int64"})
        _show(data[data["shape_set"] == shape_set.name])
        if out is not None:  # after every set: the next one may not fit into memory
            write_text(out, data.to_csv(index=False, float_format="%.6g"))
    for failure in failures:
        typer.echo(failure, err=True)
    return 1 if failures else 0


def _show(data: pd.DataFrame) -> None:
    if data.empty:
        return
    first = data.iloc[0]
    title = f"{first['shape_set']}: {first['shape']}, {first['dtype']}; {first['device']}"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name, width in (("operation", 16), ("rank", 4), ("by", 11)):  # names are never cut off
        table.add_column(name, min_width=width, no_wrap=True, justify="right" if name == "rank" else "left")
    for name in ("ms", "20–80 %", "of copy", "× ours"):
        table.add_column(name, justify="right", no_wrap=True)
    for _, rows in data.groupby(["op", "rank"], sort=False, dropna=False):
        ours = rows[rows["implementation"].str.startswith("edgc-")]["median_ms"].min()
        for number, row in enumerate(rows.to_dict("records")):
            named = (row["op"], "" if pd.isna(row["rank"]) else str(row["rank"])) if number == 0 else ("", "")
            band = f"{_number(row['p20_ms'])}–{_number(row['p80_ms'])}"
            speed = (f"{row['copy_fraction']:.0%}", f"{row['median_ms'] / ours:.2f}")
            table.add_row(*named, row["implementation"], _number(row["median_ms"]), band, *speed)
    Console(highlight=False).print(table)


def _number(value: float) -> str:
    """At least three significant digits, never with an exponent."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


class ShapeSet(NamedTuple):
    """The matrices of the transformer layers of one stage, on one tensor-parallel rank. Embeddings are left out."""

    name: str
    shapes: list[tuple[int, int]]  #: rows and columns, in the order of the layers

    @property
    def numel(self) -> int:
        """Elements of all matrices."""
        return sum(m * n for m, n in self.shapes)


def shape_sets() -> list[ShapeSet]:
    """Those of `STAGES`."""
    made = ((name, layer_matrices(load(Model, model), tensor, stages)) for name, model, stages, tensor in STAGES)
    return [ShapeSet(*each) for each in made]


def measure(shape_set: ShapeSet, device: str, quick: bool, fail: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Rows of the benchmark, one per operation, rank and implementation.

    An implementation that is not right on one matrix of each shape is reported to `fail` and gets no row.
    """
    kernels = backend.missing(device) is None and device != "cpu"
    rounds, seconds = (3, 0.0) if quick else (7, 2.0)
    fastest = _copy_rate(shape_set, device)
    fixed = _fixed(device, shape_set)
    for op, rank, make in _operations(device, kernels):
        green = _gate(shape_set, op, rank, make, fail)
        case = make(shape_set.shapes)
        times = interleaved({n: w for n, w in case.work.items() if n in green}, device, rounds, seconds)
        for name, (p20, median, p80) in times.items():
            rate = case.moved / median / 1e9
            timed = {"op": op, "rank": rank, "implementation": name, "gb_per_s": rate, "copy_fraction": rate / fastest}
            yield fixed | timed | {"median_ms": 1e3 * median, "p20_ms": 1e3 * p20, "p80_ms": 1e3 * p80}
        del case  # before the next one is made


def _operations(device: str, kernels: bool) -> Iterator[tuple[str, int | None, Make]]:
    on: dict[str, Any] = {"device": device, "kernels": kernels}
    for rank in RANKS:
        yield "exchange-core", rank, partial(cases.exchange_case, **on, rank=rank)
        for op in ("encode", "project", "decode"):
            yield op, rank, partial(cases.lowrank_case, op, **on, rank=rank)
        yield "orthonormalise", rank, partial(cases.orthonormalise_case, **on, rank=rank)
    for op in ("moments", "moments-sampled", "histogram"):
        yield op, None, partial(cases.moments_case, op, **on)
    yield "select", None, partial(cases.select_case, **on)


def _gate(shape_set: ShapeSet, op: str, rank: int | None, make: Make, fail: Callable[[str], None]) -> set[str]:
    """Implementations whose results are right on one matrix of each shape."""
    small = make(sorted(set(shape_set.shapes)))
    errors = {name: small.error(name) for name in small.work}
    at = f"{op} {shape_set.name}" + ("" if rank is None else f" rank {rank}")
    wrong = {name: error for name, error in errors.items() if not error <= small.tolerance}
    for name, error in wrong.items():
        fail(f"{at}: {name} is wrong by {error:.2g} of the largest element, allowed {small.tolerance:g}: not timed")
    return errors.keys() - wrong.keys()


class Times(NamedTuple):
    """Seconds over the rounds."""

    p20: float
    median: float
    p80: float


def interleaved(work: Mapping[str, Callable[[], object]], device: str, rounds: int, seconds: float) -> dict[str, Times]:
    """Times of each implementation in `rounds` rounds after one that does not count.

    More rounds if they take less than `seconds` in all, up to ten times as many. In every other round the order is
    reversed. On a GPU an implementation runs until its kernels have ended.
    """
    found: dict[str, list[float]] = {name: [] for name in work}
    begin, done = time.perf_counter(), 0
    while done <= rounds or (time.perf_counter() - begin < seconds and done <= 10 * rounds):
        for name in list(work) if done % 2 else reversed(list(work)):
            took = _once(work[name], device)
            if done:
                found[name].append(took)
        done += 1
    return {name: Times(*np.quantile(times, (0.2, 0.5, 0.8)).tolist()) for name, times in found.items()}


def _once(work: Callable[[], object], device: str) -> float:
    if device == "cpu":
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def _copy_rate(shape_set: ShapeSet, device: str) -> float:
    """GB/s of what memory can do: a copy of as many elements as a stage has, at most 256 MiB, read and written."""
    source = torch.zeros(min(shape_set.numel, 1 << 26), device=device)
    target = torch.empty_like(source)
    copied = interleaved({"copy": lambda: target.copy_(source)}, device, 9, 0.0)["copy"]
    return 8 * len(source) / copied.median / 1e9


def _fixed(device: str, shape_set: ShapeSet) -> dict[str, Any]:
    """Columns that are equal in all rows of a shape set."""
    return {
        "shape_set": shape_set.name,
        "shape": f"{len(shape_set.shapes)} matrices, {shape_set.numel / 1e6:.1f}M",
        "dtype": "fp32",
        "device": cpu_model() if device == "cpu" else torch.cuda.get_device_name(),
        "threads": torch.get_num_threads(),
        "torch": version("torch"),
        "triton": version("triton") or "",
    }
