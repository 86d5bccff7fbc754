"""A plan on the terminal, in eighty columns, and as plain values for scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgc.suite.cluster.plan import UTILISATIONS, Forecast, Plan
from edgc.suite.config import Calibration, Judgement, RunSpec

REST, EXCHANGE = ("compute", "bubble", "optimizer"), ("encode", "wire", "decode", "exposed")  #: parts of a step
MARGIN = Judgement().margin_nats  # type: ignore[call-arg]  # as in experiments that do not say otherwise
GATHERS = {"gather": "In all", "gather_exposed": "Exposed"}  #: parts that a step has where parameters are sharded
LATENCIES = {
    "wire": "wire",
    "exchange": "encode + wire + decode",
    "exposed": "exposed",
    "everything": "all traffic",
}
#: By method, a measured loss gap: its gap, low and high (nats), pairs of seeds, model, experiment, other settings, and
#: an optimizer that is not dense's.
Gaps = Mapping[str, Mapping[str, Any]]


def plain(plan: Plan, spec: RunSpec, calibration: Calibration, precision: str, gaps: Gaps) -> dict[str, Any]:
    """What `edgc plan --json` prints. Infinite break-evens are null, with `pays_on_every_link` true."""
    forecast, kept = plan.candidate, fastest_kept(plan, gaps)
    return {
        "model": spec.model.name,
        "cluster": spec.cluster.name,
        "link_gbit": spec.cluster.link_gbit,
        "parallel": spec.parallel.model_dump(),
        **_shards(spec),
        "precision": precision,
        "calibration": {"name": calibration.name, "source": calibration.source},
        "verdict": plan.verdict,
        "sentence": plan.sentence,
        "fastest_kept": kept and kept.method,
        "baseline": plan.baseline,
        "baseline_s": plan.baseline_s,
        "dense_s": plan.dense_s,
        "bound_percent": plan.bound_percent,
        **({} if forecast is None else _headline(forecast)),
        "methods": [_method(each) | {"loss_gap": gaps.get(each.method)} for each in plan.forecasts],
    }


def _method(forecast: Forecast) -> dict[str, Any]:
    """JSON has no infinity."""
    needs = {str(percent): _finite(gbit) for percent, gbit in forecast.needs_gbit.items()}
    return asdict(forecast) | {"break_even_gbit": _finite(forecast.break_even_gbit), "needs_gbit": needs}


def _shards(spec: RunSpec) -> dict[str, Any]:
    """How parameters are sharded and travel; nothing where they are not."""
    t = spec.training
    return {} if t.shard == "none" else {"shard": t.shard, "parameter_wire": t.parameter_wire}


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


def show(plan: Plan, spec: RunSpec, calibration: Calibration, precision: str, trajectory: str, gaps: Gaps) -> None:
    """Print it."""
    console = Console(highlight=False)
    console.print(f"[bold]{about(plan, spec, precision)}[/bold]")
    console.print(f"Rates of {calibration.name}: {calibration.source} ({calibration.origin}).")
    console.print(f"Entropy of the gradients: {trajectory}.\n")
    for table in _tables(plan, gaps):
        console.print(table)
    console.print(
        f"A step without any exchange of gradients would take {number(plan.by_name('dense').floor_s, 4)} s: "
        f"{percent(plan.bound_percent)} less than dense fp32's {number(plan.dense_s, 4)} s. Only a method that also "
        "compresses other traffic can save more."
    )
    if unknown := [f.title for f in plan.forecasts if f.method not in {"dense", *gaps}]:
        console.print(f"Loss gap not known, as no experiment published it: {'; '.join(unknown)}.")
    if other := _told(plan, gaps, "settings"):
        console.print(f"Loss gap measured with other settings than those planned: {other}.")
    if trained := _told(plan, gaps, "optimizer"):
        console.print(f"Not trained with adamw as dense is, which is part of the loss gap: {trained}.")
    for note in dict.fromkeys(note for each in plan.forecasts for note in each.notes):
        console.print(f"Note: {note}.")
    console.print(f"[bold]{plan.sentence}[/bold] ({calibration.source})")
    if kept := fastest_kept(plan, gaps):
        console.print(
            f"Of those whose loss was measured as planned, and that lose less than {MARGIN:g} nats, {kept.title} is "
            f"fastest: {rounded(kept.low_percent, 1)} to {percent(kept.high_percent)} less time."
        )


def fastest_kept(plan: Plan, gaps: Gaps) -> Forecast | None:
    """The fastest of the candidates whose loss is known to be kept with the settings that are planned."""
    known = [f for f in _known(plan, gaps) if f.candidate and not gaps[f.method]["settings"]]
    return min((f for f in known if gaps[f.method]["high"] < MARGIN), key=lambda f: f.iteration_s, default=None)


def _known(plan: Plan, gaps: Gaps) -> list[Forecast]:
    return [forecast for forecast in plan.forecasts if forecast.method in gaps]


def _told(plan: Plan, gaps: Gaps, what: str) -> str:
    """The methods whose gap has such a thing to tell, each with it."""
    return "; ".join(f"{f.title} ({gaps[f.method][what]})" for f in _known(plan, gaps) if gaps[f.method][what])


def about(plan: Plan, spec: RunSpec, precision: str) -> str:
    """What is planned, in a line."""
    p, shards = spec.parallel, _shards(spec)
    sharded = f", shard {shards['shard']} with parameters {shards['parameter_wire']}" if shards else ""
    return (
        f"{spec.model.name} on {spec.cluster.name}: {plan.gpus} × {spec.cluster.device_model}, tensor {p.tensor} × "
        f"pipeline {p.pipeline} × data {p.data}, {spec.cluster.link_gbit or 0:g} Gbit/s a node, {precision}, "
        f"{spec.micro_batches} micro-batches of {spec.training.micro_batch}, {spec.training.iterations} iterations"
        f"{sharded}"
    )


def _tables(plan: Plan, gaps: Gaps) -> Iterator[Table]:
    """Each fits a terminal of eighty columns with every number whole."""
    base, each = plan.by_name(plan.baseline), plan.forecasts
    yield _table(
        f"Saved against {base.title}",
        each,
        {
            "Step (s)": lambda f: number(f.iteration_s, 4),
            "Saved": lambda f: percent(f.saving_percent),
            "If rates are off by a fifth": lambda f: f"{rounded(f.low_percent, 1)} to {percent(f.high_percent)}",
            "Saved of dense fp32": lambda f: percent(f.saving_fp32_percent),
        },
    )
    if known := _known(plan, gaps):
        yield _table(
            "What it costs in loss, where that was measured (nats)",
            known,
            {
                "Gap": lambda f: _signed(gaps[f.method]["gap"]),
                "95 % interval": lambda f: f"{_signed(gaps[f.method]['low'])} to {_signed(gaps[f.method]['high'])}",
                "Seeds": lambda f: f"{gaps[f.method]['pairs']}",
                "On": lambda f: gaps[f.method]["model"],
            },
        )
    yield _table(
        "When it pays",
        each,
        {
            "Pays below": lambda f: _below(f.break_even_gbit),
            "Pays to rank": lambda f: "–" if f.highest_rank is None else f"{f.highest_rank}",
            "Days": lambda f: number(f.days),
            "GPU-hours saved": lambda f: rounded(24 * plan.gpus * (base.days - f.days)),
        },
    )
    yield _table(
        "How busy devices are, and the link that a node needs to keep them so busy",
        each,
        {"Busy now": lambda f: percent(f.utilisation_percent)} | {f"{p} % busy": _needs(p) for p in UTILISATIONS},
    )
    ranks: dict[str, Column] = {"Rank by stage": lambda f: _by_stage(f.amounts)}
    rest = {part.capitalize(): _part(part) for part in REST}
    yield _table("A step once the policy has settled (s), without its exchange of gradients", each, ranks | rest)
    yield _table("Its exchange of gradients (s)", each, {part.capitalize(): _part(part) for part in EXCHANGE})
    if "gather" in base.settled:
        yield _table("Its gathers of parameters (s)", each, {name: _part(part) for part, name in GATHERS.items()})
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


def _signed(nats: float) -> str:
    return f"{nats:+.4f}".replace("-", "−")


def _needs(utilisation: int) -> Column:
    def told(forecast: Forecast) -> str:
        gbit = forecast.needs_gbit[utilisation]
        return "any link" if not gbit else "none is enough" if math.isinf(gbit) else f"{number(gbit)} Gbit/s"

    return told


def _part(name: str) -> Column:
    return lambda forecast: number(forecast.settled[name])


def _latency(kind: str) -> Column:
    return lambda forecast: number(forecast.latency_s[kind])


def _reduction(kind: str) -> Column:
    return lambda forecast: percent(forecast.latency_reduction_percent[kind])


def _by_stage(amounts: Sequence[float | None]) -> str:
    """Ranks (or ratios) of the stages, once if they are equal."""
    told = ["dense" if amount is None else number(amount) for amount in amounts]
    return told[0] if len(set(told)) == 1 else ", ".join(told)


def _below(gbit: float | None) -> str:
    if gbit is None:
        return "–"
    return "any link" if math.isinf(gbit) else f"{number(gbit)} Gbit/s"


def number(value: float, digits: int = 3) -> str:
    """So many significant digits; what is larger has all its digits, never an exponent."""
    return rounded(value) if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}".replace("-", "−")


def rounded(value: float, decimals: int = 0) -> str:
    """So many decimals; what rounds to zero has no sign."""
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def percent(value: float) -> str:
    """One decimal."""
    return f"{rounded(value, 1)} %"
