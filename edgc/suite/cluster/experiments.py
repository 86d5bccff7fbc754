"""Forecasts of experiments: of one whose mode is simulate, under assumptions; of a timing, before it is run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.suite.cluster.calibrate import Timed, calibrate, read_session
from edgc.suite.cluster.forecasts import Forecasts, forecast
from edgc.suite.cluster.question import Scenario, at_rate, calibration_of, elsewhere
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.whole_run import WholeRun
from edgc.suite.config import Calibration, Experiment, Method, RunSpec, load, load_experiment
from edgc.suite.config.provenance import code_base
from edgc.suite.config.rate import bits_per_second
from edgc.suite.config.simulation import Assumption, Simulation
from edgc.suite.config.timing import UNSHAPED

#: Of a `Forecast`, what a row has as it is.
PLAIN = (
    "method", "title", "iteration_s", "floor_s", "days", "saving_percent", "low_percent", "high_percent",
    "saving_fp32_percent", "break_even_gbit", "utilisation_percent",
)  # fmt: skip


def write_forecasts(experiment: Experiment, results: Path) -> list[dict[str, Any]]:
    """Rows of an experiment of mode simulate: one a model, set of assumptions, method, and point of a sweep.

    `sweep`: none, link, rank, or map (links by latencies). Only with shards: `gather_s`, `gather_exposed_s`. The code
    that made them is written to `<results>/<experiment>/manifest.json`.
    """
    simulation = experiment.simulation
    assert simulation is not None
    specs = [spec for spec in experiment.runs() if spec.seed == experiment.first_seeds[0]]
    rows: list[dict[str, Any]] = []
    for model in experiment.models:
        own = {spec.method.name: spec for spec in specs if spec.model.name == model}
        methods = [spec.method for spec in own.values()]
        for assumption in simulation.assumptions:
            scenario = _assuming(own["dense"], assumption)
            known = {"model": model, "assumption": assumption.title, "precision": scenario.precision}
            known |= {"calibration": ", ".join([scenario.calibration.name, *_changes(assumption)])}
            known["source"] = scenario.calibration.source
            rows += [known | row for row in _swept(scenario, methods, simulation)]
    files.write_json(results / experiment.name / "manifest.json", code_base())
    return rows


def _assuming(base: RunSpec, assumption: Assumption) -> Scenario:
    rates = calibration_of(base.cluster, assumption.calibration)
    rates = elsewhere(rates, assumption.latency_ms, assumption.stage_speeds)
    scenario = Scenario(base, rates, assumption.precision or base.training.precision)
    return scenario.at(_gbit(assumption.link)) if assumption.link else scenario


def _swept(scenario: Scenario, methods: Sequence[Method], simulation: Simulation) -> Iterator[dict[str, Any]]:
    """A scenario's rows, and those of every sweep from it."""
    dense = [method for method in methods if method.baseline]
    yield from _rows(forecast(scenario, methods), "none")
    for link in simulation.links:
        yield from _rows(forecast(scenario.at(_gbit(link)), methods), "link")
    if simulation.ranks:
        ranked = _changed(load(Method, "powersgd"), map(_ranked, simulation.ranks))
        yield from _rows(forecast(scenario, [*dense, *ranked]), "rank")
    for link, latency in product(simulation.links, simulation.latencies_ms):
        there = scenario.at(_gbit(link)).far(latency)
        found = forecast(there, methods)
        fastest = next(method for method in methods if method.name == found.baseline.method)
        local = _changed(fastest, map(_local, simulation.local_steps))
        beside = _rows(forecast(there, [*dense, *local]), "map") if local else ()
        names = {method.name for method in local}
        every = [*_rows(found, "map"), *(row for row in beside if row["method"] in names)]
        yield from (row | {"latency_ms": latency} for row in every)


def _gbit(link: str) -> float:
    return bits_per_second(link) / 1e9


def _changes(assumption: Assumption) -> Iterator[str]:
    """How an assumption differs from its calibration, in words."""
    if assumption.latency_ms is not None:
        yield f"{assumption.latency_ms:g} ms"
    if assumption.stage_speeds:
        yield "stages " + ":".join(f"{speed:g}" for speed in assumption.stage_speeds)


def _local(every: int) -> dict[str, Any]:
    """What makes a dense method DiLoCo (arXiv 2311.08105), every so many steps; its loss is not predicted."""
    outer = {"synchronisation": {"name": "outer", "every": every}, "overlap": False}
    return {"name": f"local_{every}", "title": f"Local steps, {every}"} | outer


def _ranked(rank: int) -> dict[str, Any]:
    """What gives PowerSGD another rank."""
    return {"name": f"powersgd_r{rank}", "title": f"PowerSGD, rank {rank}", "policy": {"rank": rank}}


def _changed(method: Method, changes: Iterable[dict[str, Any]]) -> list[Method]:
    return [validate(Method, merge(method.model_dump(), change), "a sweep") for change in changes]


def _rows(found: Forecasts, sweep: str) -> Iterator[dict[str, Any]]:
    spec = found.scenario.spec
    for each in found.methods:
        yield {
            "sweep": sweep,
            "link_gbit": spec.cluster.gbit,
            **{name: getattr(each, name) for name in PLAIN},
            "amounts": json.dumps(each.amounts),
            "tokens_per_s": spec.training.global_batch * spec.model.seq_length / each.iteration_s,
            "baseline": found.baseline.method,
            "bound_percent": 100 * (1 - each.floor_s / found.dense.iteration_s),
            "verdict": found.verdict,
            "sentence": found.sentence,
            "gpu_hours": 24 * found.gpus * each.days,
            **{f"needs_gbit_{percent}": gbit for percent, gbit in each.needs_gbit.items()},
            **{f"{part}_s": seconds for part, seconds in each.settled.items()},
            **{f"latency_{kind}_s": seconds for kind, seconds in each.latency_s.items()},
            **{f"latency_{kind}_percent": share for kind, share in each.latency_reduction_percent.items()},
        }


def write_prediction(experiment: Experiment, results: Path) -> Path:
    """Forecast a timing before it is run, so that both can be compared: `<results>/<experiment>/prediction.json`.

    The model is calibrated on other sessions on the same machine (`predict_from`). It says nothing of policies that
    decide by what they see, nor of links without a limit, whose rate is the machine's own affair. Returns the path.

    Raises `UserError` if the experiment names no sessions to be calibrated on, one of them was not run to its end, or
    the experiment was measured already: a prediction comes before.
    """
    folder = results / experiment.name
    if not experiment.predict_from:
        raise UserError(f"experiment {experiment.name}: predict_from is empty: name timings to calibrate the model on")
    if begun := next(folder.glob("runs/*/steps.jsonl"), None):
        raise UserError(f"{begun}: measured already, and a prediction comes before; remove {folder}, or move it away")
    timed = [one for name in experiment.predict_from for one in read_session(load_experiment(name), results)]
    origin = f"measured on this machine by {', '.join(experiment.predict_from)}"
    found = calibrate(experiment.name, timed, origin)
    record = {"written": datetime.now(UTC).isoformat(timespec="seconds")} | code_base()
    record |= {"calibration": found.model_dump(mode="json"), "rows": list(_predicted(experiment, found, timed))}
    files.write_json(folder / "prediction.json", record)
    return folder / "prediction.json"


def _predicted(experiment: Experiment, rates: Calibration, timed: Sequence[Timed]) -> Iterator[dict[str, Any]]:
    """A row a method and limited rate. `known`: whether the calibration rests on that very point."""
    assert experiment.timing is not None
    seen = {(one.computed, one.spec.method.name, rate) for one in timed for rate in one.stages}
    steady = (spec for spec in experiment.runs() if not spec.method.control and not spec.method.adapts)
    specs = [spec for spec in steady if spec.method.in_every_step]  # of others a step is a mean over a period
    limited = [rate for rate in experiment.timing.rates if rate != UNSHAPED]
    for spec, rate in product(specs, limited):
        model = StepModel(at_rate(spec, _gbit(rate)), rates)
        yield {
            "model": spec.model.name,
            "method": spec.method.name,
            "title": spec.method.title,
            "calibration": rates.name,
            "source": rates.source,
            "sweep": "measured",
            "rate": rate,
            "known": ((spec.model.name, spec.parallel), spec.method.name, rate) in seen,
            "link_gbit": _gbit(rate),
            "iteration_s": WholeRun.of(model).compressed.step.seconds,
            "floor_s": model.floor,
        }
