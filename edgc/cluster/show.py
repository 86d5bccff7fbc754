"""A plan on the terminal, and as plain values for scripts."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

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
    console.print(_methods(plan))
    console.print(_parts(plan))
    console.print(_latencies(plan))
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


def _methods(plan: Plan) -> Table:
    table = Table(box=box.SIMPLE, title=f"Saved against {plan.by_name(plan.baseline).title}", title_justify="left")
    table.add_column("Method")
    for heading in (
        "Step (s)",
        "Saved",
        "(± 20 %)",
        "of fp32",
        "Pays below",
        "Pays to rank",
        "Days",
        "GPU-hours saved",
    ):
        table.add_column(heading, justify="right")
    base = plan.by_name(plan.baseline)
    for each in plan.forecasts:
        table.add_row(
            each.title,
            f"{each.iteration_s:.4g}",
            f"{each.saving_percent:.1f} %",
            f"{each.low_percent:.0f} … {each.high_percent:.0f} %",
            f"{each.saving_fp32_percent:.1f} %",
            _below(each.break_even_gbit),
            "–" if each.highest_rank is None else f"{each.highest_rank}",
            f"{each.days:.3g}",
            f"{24 * plan.gpus * (base.days - each.days):.0f}",
        )
    return table


def _parts(plan: Plan) -> Table:
    table = Table(box=box.SIMPLE, title="A step once the policy has settled (s)", title_justify="left")
    table.add_column("Method")
    for heading in ("Rank by stage", *(part.capitalize() for part in PARTS)):
        table.add_column(heading, justify="right")
    for each in plan.forecasts:
        ranks = ", ".join("dense" if amount is None else f"{amount:.3g}" for amount in each.amounts)
        table.add_row(each.title, ranks, *(f"{each.settled[part]:.3g}" for part in PARTS))
    return table


def _latencies(plan: Plan) -> Table:
    title = "Communication latency of a step, mean over the run (s), and how much less than dense fp32"
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    table.add_column("Method")
    for heading in LATENCIES.values():
        table.add_column(heading, justify="right")
    for each in plan.forecasts:
        cells = (f"{each.latency_s[k]:.3g} (−{each.latency_reduction_percent[k]:.1f} %)" for k in LATENCIES)
        table.add_row(each.title, *cells)
    return table


def _below(gbit: float | None) -> str:
    if gbit is None:
        return "–"
    return "any link" if math.isinf(gbit) else f"{gbit:.3g} Gbit/s"
