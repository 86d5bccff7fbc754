"""An experiment of `mode: simulate`: forecasts of its methods under every set of assumptions, with sweeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from edgc.core.base import files
from edgc.core.base.provenance import code_base
from edgc.core.settings.settings import merge, validate
from edgc.suite.cluster.ask import calibration_of, elsewhere
from edgc.suite.cluster.plan import Plan, at_rate, plan
from edgc.suite.cluster.trajectory import Parametric, Trajectory
from edgc.suite.config import CONFIGS, Experiment, Method, RunSpec, load
from edgc.suite.config.rate import bits_per_second
from edgc.suite.config.simulation import Assumption


def write_forecasts(experiment: Experiment, results: Path, configs: Path = CONFIGS) -> list[dict[str, Any]]:
    """A row a model, set of assumptions, method, and point of a sweep.

    `sweep`: none, link, rank, or map (links by latencies). Only with shards: `gather_s`, `gather_exposed_s`. The code
    that made them is written to `<results>/<experiment>/manifest.json`.
    """
    rows = list(_rows(experiment, Parametric(), configs))
    files.write_json(results / experiment.name / "manifest.json", code_base())
    return rows


def _rows(experiment: Experiment, trajectory: Trajectory, configs: Path) -> Iterator[dict[str, Any]]:
    assert experiment.simulation is not None
    specs = [spec for spec in experiment.runs(configs) if spec.seed == experiment.first_seeds[0]]
    for model in experiment.models:
        own = {spec.method.name: spec for spec in specs if spec.model.name == model}
        base, methods = own["dense"], [spec.method for spec in own.values()]
        for assumption in experiment.simulation.assumptions:
            rates = calibration_of(base.cluster, assumption.calibration, configs)
            rates = elsewhere(rates, assumption.latency_ms, assumption.stage_speeds)
            spec = at_rate(base, bits_per_second(assumption.link) / 1e9) if assumption.link else base
            precision = assumption.precision or spec.training.precision
            known = {"model": model, "assumption": assumption.title, "precision": precision}
            known |= {"calibration": ", ".join([rates.name, *_changes(assumption)]), "source": rates.source}
            found = plan(spec, methods, rates, trajectory, precision)
            yield from (known | row for row in _of(found, spec, "none"))
            for link in experiment.simulation.links:
                at = at_rate(base, bits_per_second(link) / 1e9)
                yield from (known | row for row in _of(plan(at, methods, rates, trajectory, precision), at, "link"))
            ranked = [*_dense(methods), *_ranked(experiment.simulation.ranks, configs)]
            if experiment.simulation.ranks:
                yield from (known | row for row in _of(plan(spec, ranked, rates, trajectory, precision), spec, "rank"))
            for link, latency in product(experiment.simulation.links, experiment.simulation.latencies_ms):
                at, far = at_rate(base, bits_per_second(link) / 1e9), elsewhere(rates, latency)
                found = plan(at, methods, far, trajectory, precision)
                rows = [*_of(found, at, "map")]
                if local := _local(own[found.baseline].method, experiment.simulation.local_steps):
                    beside = plan(at, [*_dense(methods), *local], far, trajectory, precision)
                    rows += [row for row in _of(beside, at, "map") if row["method"] in {m.name for m in local}]
                yield from (known | row | {"latency_ms": latency} for row in rows)


def _changes(assumption: Assumption) -> Iterator[str]:
    """How an assumption differs from its calibration, in words."""
    if assumption.latency_ms is not None:
        yield f"{assumption.latency_ms:g} ms"
    if assumption.stage_speeds:
        yield "stages " + ":".join(f"{speed:g}" for speed in assumption.stage_speeds)


def _local(dense: Method, steps: Iterable[int]) -> list[Method]:
    """DiLoCo (arXiv 2311.08105) with the fastest dense method's aggregator, every so many steps.

    What that costs in quality is not predicted.
    """
    return [
        validate(
            Method,
            dense.model_dump()
            | {"name": f"local_{every}", "title": f"Local steps, {every}", "overlap": False}
            | {"synchronisation": {"name": "outer", "every": every}},
            "a sweep of local steps",
        )
        for every in steps
    ]


def _dense(methods: list[Method]) -> list[Method]:
    return [method for method in methods if method.baseline]


def _ranked(ranks: tuple[int, ...], configs: Path) -> list[Method]:
    """PowerSGD at each rank."""
    plain = load(Method, "powersgd", configs).model_dump()
    changes = [{"name": f"powersgd_r{r}", "title": f"PowerSGD, rank {r}", "policy": {"rank": r}} for r in ranks]
    return [validate(Method, merge(plain, change), "a sweep of ranks") for change in changes]


def _of(found: Plan, spec: RunSpec, sweep: str) -> Iterator[dict[str, Any]]:
    for each in found.forecasts:
        yield {
            "sweep": sweep,
            "link_gbit": spec.cluster.link_gbit,
            "method": each.method,
            "title": each.title,
            "amounts": json.dumps(each.amounts),
            "iteration_s": each.iteration_s,
            "tokens_per_s": spec.training.global_batch * spec.model.seq_length / each.iteration_s,
            "floor_s": each.floor_s,
            "baseline": found.baseline,
            "bound_percent": 100 * (1 - each.floor_s / found.dense_s),
            "verdict": found.verdict,
            "sentence": found.sentence,
            "days": each.days,
            "gpu_hours": 24 * found.gpus * each.days,
            "saving_percent": each.saving_percent,
            "low_percent": each.low_percent,
            "high_percent": each.high_percent,
            "saving_fp32_percent": each.saving_fp32_percent,
            "break_even_gbit": each.break_even_gbit,
            "utilisation_percent": each.utilisation_percent,
            **{f"needs_gbit_{percent}": gbit for percent, gbit in each.needs_gbit.items()},
            **{f"{part}_s": seconds for part, seconds in each.settled.items()},
            **{f"latency_{kind}_s": seconds for kind, seconds in each.latency_s.items()},
            **{f"latency_{kind}_percent": share for kind, share in each.latency_reduction_percent.items()},
        }
