"""A plan on the terminal, and as plain values for scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgc.cluster.plan import Forecast, Plan
from edgc.config import Calibration, RunSpec

PARTS = ("compute", "bubble", "encode", "wire", "decode", "exposed", "optimizer")
LATENCIES = {
    "wire": "wire",
    "exchange": "encode + wire + decode",
    "exposed": "exposed",
    "everything": "all traffic",
}


def plain(plan: Plan, spec: RunSpec, calibration: Calibration, precision: str) -> dict[str, Any]:
    """What `edgc plan --json` prints. Infinite break-evens are null, with `pays_on_every_link` true."""
    forecast = plan.candidate
    return {
        "model": spec.model.name,
        "cluster": spec.cluster.name,
        "link_gbit": spec.cluster.link_gbit,
        "parallel": spec.parallel.model_dump(),
        "precision": precision,
        "calibration": {"name": calibration.name, "source": calibration.source},
        "verdict": plan.verdict,
        "sentence": plan.sentence,
        "baseline": plan.baseline,
        "baseline_s": plan.baseline_s,
        "dense_s": plan.dense_s,
        "bound_percent": plan.bound_percent,
        **({} if forecast is None else _headline(forecast)),
        "methods": [asdict(each) | {"break_even_gbit": _finite(each.break_even_gbit)} for each in plan.forecasts],
    }


def _headline(forecast: Forecast) -> dict[str, Any]:
    return {
        "method": forecast.method,
        "iteration_s": forecast.iteration_s,
        "saving_percent": forecast.saving_percent,
        "saving_interval_percent": [forecast.low_percent, forecast.high_percent],
        "latency_reduction_percent": forecast.latency_reduction_percent,
        "break_even_gbit": _finite(forecast.break_even_gbit),
        "pays_on_every_link": forecast.break_even_gbit == math.inf,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def show(plan: Plan, spec: RunSpec, calibration: Calibration, precision: str, trajectory: str) -> None:
    """Print it."""
    console = Console(highlight=False)
    console.print(f"[bold]{about(plan, spec, precision)}[/bold]")
    console.print(f"Rates of {calibration.name}: {calibration.source} ({calibration.origin}). Entropy: {trajectory}.")
    for table in _tables(plan):
        console.print(table)
    console.print(
        f"Without any exchange of gradients a step would take {plan.by_name('dense').floor_s:.4g} s, "
        f"{plan.bound_percent:.1f} % less than dense fp32's {plan.dense_s:.4g} s: only what compresses other traffic, "
        "too, can save more."
    )
    for note in dict.fromkeys(note for each in plan.forecasts for note in each.notes):
        console.print(f"Note: {note}.")
    console.print(f"[bold]{plan.sentence}[/bold] ({calibration.source})")


def about(plan: Plan, spec: RunSpec, precision: str) -> str:
    """What is planned, in a line."""
    p = spec.parallel
    return (
        f"{spec.model.name} on {spec.cluster.name}: {plan.gpus} × {spec.cluster.device_model}, tensor {p.tensor} × "
        f"pipeline {p.pipeline} × data {p.data}, {spec.cluster.link_gbit or 0:g} Gbit/s a node, {precision}, "
        f"{spec.micro_batches} micro-batches of {spec.training.micro_batch}, {spec.training.iterations} iterations"
    )


def _tables(plan: Plan) -> Iterator[Table]:
    """Each fits a terminal of eighty columns with every number whole."""
    base, each = plan.by_name(plan.baseline), plan.forecasts
    yield _table(
        f"Saved against {base.title}",
        each,
        {
            "Step (s)": lambda f: f"{f.iteration_s:.4g}",
            "Saved": lambda f: f"{f.saving_percent:.1f} %",
            "If rates are off by a fifth": lambda f: f"{f.low_percent:.1f} to {f.high_percent:.1f} %",
            "Saved of dense fp32": lambda f: f"{f.saving_fp32_percent:.1f} %",
        },
    )
    yield _table(
        "What that means",
        each,
        {
            "Pays below": lambda f: _below(f.break_even_gbit),
            "Pays to rank": lambda f: "–" if f.highest_rank is None else f"{f.highest_rank}",
            "Days": lambda f: f"{f.days:.3g}",
            "GPU-hours saved": lambda f: f"{24 * plan.gpus * (base.days - f.days):.0f}",
            "Rank by stage": lambda f: _by_stage(f.amounts),
        },
    )
    half = (len(PARTS) + 1) // 2
    for number, parts in enumerate((PARTS[:half], PARTS[half:]), start=1):
        title = f"A step once the policy has settled (s), {number} of 2"
        yield _table(title, each, {part.capitalize(): _part(part) for part in parts})
    seconds = {heading: _latency(kind) for kind, heading in LATENCIES.items()}
    yield _table("Communication latency of a step, mean over the run (s)", each, seconds)
    less = {heading: _reduction(kind) for kind, heading in LATENCIES.items()}
    yield _table("How much less that is than dense fp32's", each, less)


Column = Callable[[Forecast], str]


def _table(title: str, forecasts: Iterable[Forecast], columns: Mapping[str, Column]) -> Table:
    table = Table(box=box.SIMPLE, title=title, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("Method", max_width=24)
    for heading in columns:
        table.add_column(heading, justify="right", overflow="fold")
    for forecast in forecasts:
        told = [column(forecast) for column in columns.values()]
        table.add_row(forecast.title, *(Text(cell, no_wrap="," not in cell) for cell in told))
    return table


def _part(name: str) -> Column:
    return lambda forecast: f"{forecast.settled[name]:.3g}"


def _latency(kind: str) -> Column:
    return lambda forecast: f"{forecast.latency_s[kind]:.3g}"


def _reduction(kind: str) -> Column:
    return lambda forecast: f"{forecast.latency_reduction_percent[kind]:.1f} %"


def _by_stage(amounts: Sequence[float | None]) -> str:
    """Ranks (or ratios) of the stages, once if they are equal."""
    told = ["–" if amount is None else f"{amount:.3g}" for amount in amounts]
    return told[0] if len(set(told)) == 1 else ", ".join(told)


def _below(gbit: float | None) -> str:
    if gbit is None:
        return "–"
    return "any link" if math.isinf(gbit) else f"{gbit:.3g} Gbit/s"
