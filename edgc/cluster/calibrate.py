"""A calibration of the machine at hand, from timing sessions that were run on it (`mode: time`).

- A stage's forward, backward and optimizer: of the method that exchanges nothing, on links without a limit.
- Rates of the exchange's arithmetic: those with which all methods' encode and decode come out best.
- Efficiency and latency of the links: those with which all methods' messages on limited links come out best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from edgc import files
from edgc.cluster.compute import seconds
from edgc.cluster.step import StepModel
from edgc.cluster.transfers import bits_per_second, ring_hops
from edgc.comm import wire_factor
from edgc.config import Calibration, Experiment, Method, RunSpec, Stages
from edgc.config.timing import UNSHAPED
from edgc.errors import UserError
from edgc.policies.base import Decision
from edgc.settings import validate

GUESS = {"thin_tflops": 0.02, "memory_gbyte_s": 5.0, "launch_us": 20.0}  #: where the fit of the rates begins
FREE = 100.0  #: Gbit/s that stand for a link without a limit, until it is known what it carries


@dataclass(frozen=True)
class Timed:
    """One method of a session: medians of its counted steps, by rate."""

    spec: RunSpec
    stages: dict[str, list[dict[str, float]]]  #: by rate, then stage: seconds by region
    in_flight: dict[str, float]  #: by rate: seconds of the first stage's gradient messages, launch to completion
    link_bytes_s: dict[str, float]  #: by rate: what a rank sent in a plain all-reduce


def read_session(experiment: Experiment, results: Path) -> list[Timed]:
    """All methods of a finished session. Raises `UserError` if one is missing or did not end as it should."""
    return [_read(results / experiment.name / "runs" / spec.run_id, spec) for spec in experiment.runs()]


def _read(folder: Path, spec: RunSpec) -> Timed:
    if not (folder / "stages.json").is_file() or files.read_json(folder / "status.json")["status"] != "done":
        raise UserError(f"{folder}: not a finished timing; run the experiment (mode: time) on this machine first")
    steps = pd.DataFrame(files.read_jsonl(folder / "steps.jsonl"))
    medians = steps[steps["counted"]].groupby("rate")["t_in_flight"].median()
    links = files.read_json(folder / "manifest.json")["link"]["rates"]
    sent = {link["rate"]: link["all_reduce_bytes_per_second"] for link in links}
    return Timed(
        spec, files.read_json(folder / "stages.json"), {str(rate): float(s) for rate, s in medians.items()}, sent
    )


def calibrate(name: str, timed: Sequence[Timed], origin: str) -> Calibration:
    """The calibration that explains these timings best.

    Raises `UserError` if what is needed was not timed: the method `nocomm` on every model, methods that compress at two
    amounts at least, and a link with a limit.
    """
    first = timed[0].spec.cluster
    floors = [one for one in timed if one.spec.method.aggregator.name == "none"]  # type: ignore[attr-defined]
    others = [one for one in timed if _plain(one.spec.method)]
    limited = sorted({rate for one in others for rate in one.in_flight if rate != UNSHAPED})
    if not floors or len(others) < 2 or not limited:
        raise UserError(
            "to calibrate, a session needs the method nocomm, two methods with different ranks, and a limited rate "
            f"beside {UNSHAPED}; it has {', '.join(one.spec.method.name for one in timed)} at "
            f"{', '.join(limited) or UNSHAPED}"
        )
    known: dict[str, Any] = {
        "name": name, "source": "calibrated", "origin": origin, "device_model": first.device_model,
        "gemm_tflops": {"fp32": 1.0}, "gemm_efficiency": 1.0, "link_efficiency": 1.0, "link_latency_us": 0.0,
        "inside_gbyte_s": FREE / 8, "inside_latency_us": 0.0,
        "stages": [_stages(one).model_dump() for one in floors],
    }  # fmt: skip
    known |= _arithmetic(others, known)
    known |= _links(others, limited, known)
    free = [one.link_bytes_s[UNSHAPED] for one in timed if one.link_bytes_s.get(UNSHAPED)]
    known["inside_gbyte_s"] = float(np.median(free)) / 1e9 if free else FREE / 8
    return validate(Calibration, known, f"calibration {name}")


def _plain(method: Method) -> bool:
    """Whether the method's work is the same in every step and its parts follow one another."""
    return not method.control and not method.overlap and method.policy.name == "fixed"  # type: ignore[attr-defined]


def _stages(one: Timed) -> Stages:
    spec, stages = one.spec, one.stages[UNSHAPED if UNSHAPED in one.stages else next(iter(one.stages))]
    each = spec.micro_batches
    return validate(
        Stages,
        {
            "model": spec.model.name,
            "tensor": spec.parallel.tensor,
            "micro_batch": spec.training.micro_batch,
            "precision": spec.training.precision,
            "forward_s": [stage["forward"] / each for stage in stages],
            "backward_s": [stage["backward"] / each for stage in stages],
            "optimizer_s": [stage["optimizer"] + stage["other"] for stage in stages],
        },
        f"stages of {spec.model.name}",
    )


def _arithmetic(timed: Iterable[Timed], known: dict[str, Any]) -> dict[str, float]:
    """Rates with which the kernels' seconds are what encode and decode took on links without a limit."""
    cases = []
    for one in timed:
        if UNSHAPED not in one.stages:
            continue
        for stage, regions in enumerate(one.stages[UNSHAPED]):
            workload = _workload(one.spec, stage, known)
            kernels = [k for phase in workload.phases for k in phase.kernels] + [*workload.decode]
            cases.append((kernels, regions["encode"] + regions["decode"]))

    def errors(logs: np.ndarray) -> list[float]:
        rates = validate(Calibration, known | dict(zip(GUESS, np.exp(logs).tolist(), strict=True)), "a fit")
        return [np.log(max(seconds(kernels, rates), 1e-9) / max(took, 1e-9)) for kernels, took in cases]

    found = least_squares(errors, np.log([*GUESS.values()]), loss="soft_l1")
    return dict(zip(GUESS, np.exp(found.x).tolist(), strict=True))


def _links(timed: Iterable[Timed], limited: Sequence[str], known: dict[str, Any]) -> dict[str, float]:
    """Efficiency and latency with which messages on limited links take what they took."""
    cases = []
    for one in timed:
        data = one.spec.parallel.data
        messages = [m for phase in _workload(one.spec, 0, known).phases for m in phase.messages]
        hops = sum(ring_hops(m.collective, data) for m in messages)
        sent = sum(wire_factor(m.collective, data) * m.payload for m in messages)
        cases += [
            (hops, 8 * sent / bits_per_second(rate), one.in_flight[rate]) for rate in limited if rate in one.in_flight
        ]

    def errors(parameters: np.ndarray) -> list[float]:
        efficiency, latency = parameters
        return [(hops * latency * 1e-6 + nominal / efficiency) / took - 1 for hops, nominal, took in cases]

    found = least_squares(errors, [0.95, 100.0], bounds=([0.1, 0.0], [1.0, 1e5]), x_scale=[0.1, 100.0])
    return {"link_efficiency": float(found.x[0]), "link_latency_us": float(found.x[1])}


def _workload(spec: RunSpec, stage: int, known: dict[str, Any]) -> Any:
    """What a stage's exchange asks for at the method's fixed amount."""
    link = spec.cluster.model_copy(update={"link_gbit": FREE})
    guessed = validate(Calibration, GUESS | known, "a guess")
    model = StepModel(spec.model_copy(update={"cluster": link}), guessed)
    policy = spec.method.policy
    amount = getattr(policy, "rank", None) or getattr(policy, "ratio", None)
    return model.workload(stage, Decision(amount))
