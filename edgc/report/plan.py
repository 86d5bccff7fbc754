"""What `edgc plan` says: forecasts beside measured loss gaps, in eighty columns, and as plain values for scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgc.core.base.errors import UserError
from edgc.report.gaps import Gap, signed
from edgc.report.nearest import Cited, Known
from edgc.report.regime import count, regime_of
from edgc.suite.cluster.forecasts import UTILISATIONS, Forecast, Forecasts
from edgc.suite.cluster.memory import CATEGORIES, GB, memory_by_stage
from edgc.suite.cluster.question import Scenario, of_method
from edgc.suite.config import Judgement, Method

MARGIN = Judgement().margin_nats  # type: ignore[call-arg]  # as in experiments that do not say otherwise
#: Headings of parts of a step: without its exchange of gradients, of that, and of gathers, where there are shards.
REST = {"compute": "Compute", "bubble": "Bubble", "optimizer": "Optimizer"}
EXCHANGE = {"encode": "Encode", "wire": "Wire", "decode": "Decode", "exposed": "Exposed"}
GATHERS = {"gather": "In all", "gather_exposed": "Exposed"}
LATENCIES = {"wire": "wire", "exchange": "encode + wire + decode", "exposed": "exposed", "everything": "all traffic"}
MEMORY = dict(zip(CATEGORIES, ("param.", "grad.", "adam", "errors", "activ.", "buffers"), strict=True))  #: headings

Evidence = Mapping[str, Known]  #: of their loss, by method
Column = Callable[[Any], str]  #: what a table tells of a row


def plain(found: Forecasts, evidence: Evidence) -> dict[str, Any]:
    """What `edgc plan --json` prints. Infinite break-evens are null, with `pays_on_every_link` true."""
    spec, rates, forecast = found.scenario.spec, found.scenario.calibration, found.candidate
    shards = {"shard": spec.training.shard, "parameter_wire": spec.training.parameter_wire}
    kept = fastest(found, evidence, MARGIN)
    return {
        "model": spec.model.name,
        "cluster": spec.cluster.name,
        "link_gbit": spec.cluster.gbit,
        "parallel": spec.parallel.model_dump(),
        **(shards if spec.training.shard != "none" else {}),
        "precision": found.scenario.precision,
        "calibration": {"name": rates.name, "source": rates.source},
        "verdict": found.verdict,
        "sentence": found.sentence,
        "fastest_kept": kept and kept.method,
        "fastest_kept_reaches": bool(kept and evidence[kept.method].reaches(MARGIN)),
        "baseline": found.baseline.method,
        "baseline_s": found.baseline.iteration_s,
        "dense_s": found.dense.iteration_s,
        "bound_percent": found.bound_percent,
        **({} if forecast is None else _headline(forecast)),
        "methods": [_method(each, evidence) for each in found.methods],
        "left_out": [*found.left_out],
    }


def _method(forecast: Forecast, evidence: Evidence) -> dict[str, Any]:
    """JSON has no infinity."""
    needs = {str(percent): _finite(gbit) for percent, gbit in forecast.needs_gbit.items()}
    told = {"break_even_gbit": _finite(forecast.break_even_gbit), "needs_gbit": needs}
    return asdict(forecast) | told | evidence[forecast.method].plain(MARGIN)


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


def show(found: Forecasts, evidence: Evidence) -> None:
    """Print it."""
    console, rates = Console(highlight=False), found.scenario.calibration
    console.print(f"[bold]{found.scenario.words}[/bold]")
    console.print(f"Rates of {rates.name}: {rates.source} ({rates.origin}).")
    console.print(f"Entropy of the gradients: {found.scenario.trajectory.origin}.\n")
    for table in _tables(found, evidence):
        console.print(table)
    console.print(
        f"A step without any exchange of gradients would take {number(found.dense.floor_s, 4)} s: "
        f"{percent(found.bound_percent)} less than dense fp32's {number(found.dense.iteration_s, 4)} s. Only a method "
        "that also compresses other traffic can save more."
    )
    console.print(f"Loss gaps (nats) nearest to what is planned: {regime_of(found.scenario.spec).words}.")
    for each in (f for f in found.methods if f.method != "dense"):
        known = evidence[each.method]
        console.print(f"{each.title}: {known.verdict(MARGIN)}", *known.evidence, sep="\n  ")
    for note in dict.fromkeys(note for each in found.methods for note in each.notes):
        console.print(f"Note: {note}.")
    for why in found.left_out:
        console.print(f"Left out: {why}.", markup=False)
    console.print(f"[bold]{found.sentence}[/bold] ({rates.source})")
    if kept := fastest(found, evidence, MARGIN):
        saved = f"{rounded(kept.low_percent, 1)} to {percent(kept.high_percent)} of {found.baseline.title}'s time"
        console.print(
            *([stay(found)] if kept.verdict == "does not pay" else []),
            f"Fastest of those whose nearest loss gap is below {MARGIN:g} nats: {kept.title}. It saves {saved}, and "
            f"{evidence[kept.method].verdict(MARGIN)}.",
        )


def fastest(found: Forecasts, evidence: Evidence, margin: float) -> Forecast | None:
    """The fastest of the candidates whose nearest controlled loss gap is below a margin (nats)."""
    kept = [each for each in found.methods if each.candidate and evidence[each.method].kept(margin) == "yes"]
    return min(kept, key=lambda each: each.iteration_s, default=None)


def stay(found: Forecasts) -> str:
    """What to do where none of those saves time."""
    return f"None that keeps the loss saves time here: stay with {found.baseline.title}."


def _tables(found: Forecasts, evidence: Evidence) -> Iterator[Table]:
    """Each fits a terminal of eighty columns with every number whole."""
    base = found.baseline
    saved: dict[str, Column] = {
        "Step (s)": lambda f: number(f.iteration_s, 4),
        "Saved": lambda f: percent(f.saving_percent),
        "If rates are off by a fifth": lambda f: f"{rounded(f.low_percent, 1)} to {percent(f.high_percent)}",
        "Saved of dense fp32": lambda f: percent(f.saving_fp32_percent),
    }
    yield _table(f"Saved against {base.title}", found.methods, saved)
    if known := [forecast for forecast in found.methods if evidence[forecast.method].evidence]:
        lost: dict[str, Column] = {
            "Ours": lambda f: _gap(evidence[f.method].ours),
            "On": lambda f: _size(evidence[f.method].ours),
            "Published": lambda f: _gap(next(iter(evidence[f.method].theirs), None)),
            "At": lambda f: _size(next(iter(evidence[f.method].theirs), None)),
            f"Below {MARGIN:g}": lambda f: evidence[f.method].kept(MARGIN),
            "Near": lambda f: "yes" if evidence[f.method].reaches(MARGIN) else "no",
        }
        yield _table("What it costs in loss: the nearest gaps (nats), on how many parameters", known, lost)
    pays: dict[str, Column] = {
        "Pays below": lambda f: "–" if f.break_even_gbit is None else _link(f.break_even_gbit, math.inf),
        "Pays to rank": lambda f: "–" if f.highest_rank is None else f"{f.highest_rank}",
        "Days": lambda f: number(f.days),
        "GPU-hours saved": lambda f: rounded(24 * found.gpus * (base.days - f.days)),
    }
    yield _table("When it pays", found.methods, pays)
    needs = _each(lambda f: f.needs_gbit, {p: f"{p} % busy" for p in UTILISATIONS}, lambda gbit: _link(gbit, 0))
    title = "How busy devices are, and the link that a node needs to keep them so busy"
    yield _table(title, found.methods, {"Busy now": lambda f: percent(f.utilisation_percent)} | needs)
    title = "A step once the policy has settled (s), without its exchange of gradients"
    ranks: dict[str, Column] = {"Rank by stage": lambda f: by_stage(f.amounts)}
    yield _table(title, found.methods, ranks | _each(lambda f: f.settled, REST, number))
    yield _table("Its exchange of gradients (s)", found.methods, _each(lambda f: f.settled, EXCHANGE, number))
    if "gather" in base.settled:
        yield _table("Its gathers of parameters (s)", found.methods, _each(lambda f: f.settled, GATHERS, number))
    seconds = _each(lambda f: f.latency_s, LATENCIES, number)
    yield _table("Communication latency of a step, mean over the run (s)", found.methods, seconds)
    less = _each(lambda f: f.latency_reduction_percent, LATENCIES, percent)
    yield _table("How much less that is than dense fp32's", found.methods, less)


def _each(
    of: Callable[[Forecast], Mapping[Any, float]], headings: Mapping[Any, str], tell: Callable[[float], str]
) -> dict[str, Column]:
    """A column for each of several numbers of a forecast."""
    return {heading: lambda forecast, key=key: tell(of(forecast)[key]) for key, heading in headings.items()}  # type: ignore[misc]


def _table(title: str, forecasts: Iterable[Forecast], columns: Mapping[str, Column]) -> Table:
    table = Table(box=box.SIMPLE, title=title, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("Method", max_width=24)
    for heading in columns:
        table.add_column(heading, justify="right", overflow="fold")
    for forecast in forecasts:
        told = [column(forecast) for column in columns.values()]
        table.add_row(forecast.title, *(Text(cell, no_wrap="," not in cell) for cell in told))
    return table


def _gap(of: Gap | Cited | None) -> str:
    return "–" if of is None else signed(of.gap, 3)


def _size(of: Gap | Cited | None) -> str:
    return "–" if of is None else count(of.regime.parameters)


def _link(gbit: float, every: float) -> str:
    """A link's rate; `every` stands for any."""
    return "any link" if gbit == every else "none is enough" if math.isinf(gbit) else f"{number(gbit)} Gbit/s"


def by_stage(amounts: Sequence[float | None]) -> str:
    """Ranks (or ratios) of the stages, once if they are equal."""
    told = ["dense" if amount is None else number(amount) for amount in amounts]
    return told[0] if len(set(told)) == 1 else ", ".join(told)


def number(value: float, digits: int = 3) -> str:
    """So many significant digits; what is larger has all its digits, never an exponent."""
    return rounded(value) if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}".replace("-", "−")


def rounded(value: float, decimals: int = 0) -> str:
    """So many decimals; what rounds to zero has no sign."""
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def percent(value: float) -> str:
    """One decimal."""
    return f"{rounded(value, 1)} %"


def memory_rows(scenario: Scenario, methods: Iterable[Method], usual: bool = False) -> list[dict[str, Any]]:
    """A row a method and stage, sizes in GB; `fits` is null where the calibration does not know the device's memory.

    usual: nobody asked for just these methods, so those that this set-up refuses are left out.
    """
    has, precision = scenario.calibration.memory_gbyte, scenario.precision
    specs = {}
    for method in methods:
        with suppress(UserError) if usual else nullcontext():
            specs[method.name] = of_method(scenario.spec, method)
    return [
        {
            "method": method,
            "stage": stage,
            **{f"{name}_gbyte": getattr(needed, name) / GB for name in CATEGORIES},
            "total_gbyte": needed.total / GB,
            "device_gbyte": has,
            "fits": None if has is None else needed.total <= GB * has,
        }
        for method, spec in specs.items()
        for stage, needed in enumerate(memory_by_stage(spec, precision))
    ]


def show_memory(rows: Sequence[dict[str, Any]], scenario: Scenario) -> None:
    """Print what `edgc plan --memory` says."""
    spec, p, t = scenario.spec, scenario.spec.parallel, scenario.spec.training
    has = scenario.calibration.memory_gbyte
    known = f" of {has:g} GB" if has is not None else ", whose memory is not known"
    console = Console(highlight=False)
    console.print(
        f"[bold]{spec.model.name}, {scenario.precision}, tensor {p.tensor} × pipeline {p.pipeline} × data {p.data}, "
        f"micro-batch {t.micro_batch}, shard {t.shard}, on {scenario.calibration.device_model}{known}[/bold]"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("method", overflow="fold")
    for heading in ("stage", *MEMORY.values(), "total", "fits"):
        table.add_column(heading, no_wrap=True, justify="right")
    for row in rows:
        sizes = (f"{row[f'{name}_gbyte']:.2f}" for name in (*MEMORY, "total"))
        table.add_row(row["method"], str(row["stage"]), *sizes, {True: "yes", False: "no", None: "?"}[row["fits"]])
    console.print(table)
    console.print(
        "GB a device. adam: its moments, and fp32 copies of bf16 parameters. errors: what the method keeps from step "
        "to step. activ.: activations at the fullest moment. buffers, only with shards: exact copies of rounded "
        "parameters, or gathered layers and a layer's gradients. Not counted: what an exchange takes after backward, "
        "when activations are gone, and what CUDA and NCCL take for themselves, about 1 to 2 GB."
    )
