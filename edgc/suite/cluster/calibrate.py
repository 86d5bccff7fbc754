"""A calibration of the machine at hand, from timing sessions that were run on it (`mode: time`).

Everything rests on the fastest steps: what disturbs a machine only ever makes a step longer.

- A stage's forward, backward and optimizer: of the method that exchanges nothing, with AdamW (`compute` adds what Muon
  takes on top).
- Rates of the exchange's arithmetic: those with which all methods' encode and decode come out best.
- The links: those efficiency, latency, cost of a byte at its ends, and share of a transfer to the next stage for which
  its sender waits, with which all methods' steps come out best.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.core.policies import POLICIES
from edgc.core.policies.policy import Context, Decision
from edgc.suite.cluster.compute import optimizer_parts, seconds
from edgc.suite.cluster.question import at_rate
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.config import Calibration, Experiment, Method, RunSpec, Stages
from edgc.suite.config.rate import bits_per_second
from edgc.suite.config.timing import UNSHAPED

GUESS = {"thin_tflops": 0.02, "memory_gbyte_s": 5.0, "launch_us": 20.0}  #: where the fit of the rates begins
NO_TIME = 1e-3  #: ns a byte, at its ends, that count as none
FREE = 100.0  #: Gbit/s that stand for a link without a limit, until it is known what it carries


@dataclass(frozen=True)
class Timed:
    """One method of a session: the fastest of its counted steps, by rate."""

    spec: RunSpec
    stages: dict[str, list[dict[str, float]]]  #: by rate, then stage: seconds by region
    step_s: dict[str, float]  #: by rate
    link_bytes_s: dict[str, float]  #: by rate: what a rank sent in a plain all-reduce

    @property
    def computed(self) -> Hashable:
        """What is computed, and by how many: the model and the degrees."""
        return self.spec.model.name, self.spec.parallel


def read_session(experiment: Experiment, results: Path) -> list[Timed]:
    """All methods of a finished session. Raises `UserError` if one is missing or did not end as it should."""
    return [_read(results / experiment.name / "runs" / spec.run_id, spec) for spec in experiment.runs()]


def _read(folder: Path, spec: RunSpec) -> Timed:
    if not (folder / "stages.json").is_file():
        raise UserError(f"{folder}: not a finished timing; run the experiment (mode: time) on this machine first")
    if (status := files.read_json(folder / "status.json")["status"]) != "done":
        raise UserError(f"{folder}: ended as {status}, and tells no seconds; leave that method out of the experiment")
    steps = pd.DataFrame(files.read_jsonl(folder / "steps.jsonl"))
    fastest = steps[steps["counted"]].groupby("rate")["t_step"].min()
    links = files.read_json(folder / "manifest.json")["link"]["rates"]
    sent = {link["rate"]: link["all_reduce_bytes_per_second"] for link in links}
    return Timed(
        spec, files.read_json(folder / "stages.json"), {str(rate): float(s) for rate, s in fastest.items()}, sent
    )


def calibrate(name: str, timed: Sequence[Timed], origin: str) -> Calibration:
    """The calibration that explains these timings best.

    Raises `UserError` if what is needed was not timed: the method `nocomm` on every model, methods that compress at two
    amounts at least, and links with two limits. The floor has to train with AdamW.
    """
    first = timed[0].spec.cluster
    floors = [one for one in timed if one.spec.method.floor and one.spec.training.optimizer == "adamw"]
    others = [one for one in timed if _plain(one.spec.method)]
    limited = sorted({rate for one in others for rate in one.step_s if rate != UNSHAPED})
    if not floors or len(others) < 2 or len(limited) < 2:
        raise UserError(
            "to calibrate, a session needs the method nocomm with optimizer: adamw, two methods with different ranks, "
            "and two limited rates; it has "
            f"{', '.join(f'{one.spec.method.name} ({one.spec.training.optimizer})' for one in timed)} at "
            f"{', '.join(limited) or UNSHAPED}"
        )
    known: dict[str, Any] = {
        "name": name, "source": "calibrated", "origin": origin, "device_model": first.device_model,
        "gemm_tflops": {"fp32": 1.0}, "gemm_efficiency": 1.0, "link_efficiency": 1.0, "link_latency_us": 0.0,
        "inside_gbyte_s": FREE / 8, "inside_latency_us": 0.0,
        "stages": [_stages(one).model_dump() for one in floors],
    }  # fmt: skip
    known |= _arithmetic(others, known)
    known |= _links([*floors, *others], limited, known)
    free = [one.link_bytes_s[UNSHAPED] for one in timed if one.link_bytes_s.get(UNSHAPED)]
    known["inside_gbyte_s"] = float(np.median(free)) / 1e9 if free else FREE / 8
    return validate(Calibration, known, f"calibration {name}")


def _plain(method: Method) -> bool:
    """Whether the method's work is the same in every step and its parts follow one another."""
    return method.in_every_step and not (method.control or method.overlap or method.adapts)


def _stages(one: Timed) -> Stages:
    spec, stages = one.spec, min(one.stages.values(), key=lambda stages: sum(map(_work, stages)))
    each, parts = spec.micro_batches, optimizer_parts(spec)
    return validate(
        Stages,
        {
            "model": spec.model.name,
            "tensor": spec.parallel.tensor,
            "micro_batch": spec.training.micro_batch,
            "precision": spec.training.precision,
            "forward_s": [stage["forward"] / each for stage in stages],
            "backward_s": [stage["backward"] / each for stage in stages],
            "optimizer_s": [parts * (stage["optimizer"] + stage["other"]) for stage in stages],
        },
        f"stages of {spec.model.name}",
    )


def _work(regions: dict[str, float]) -> float:
    return regions["forward"] + regions["backward"] + regions["optimizer"] + regions["other"]


def _arithmetic(timed: Iterable[Timed], known: dict[str, Any]) -> dict[str, float]:
    """Rates with which the kernels' seconds are what encode and decode took, in the mean over all links."""
    cases = []
    for one in timed:
        for stage, by_rate in enumerate(zip(*one.stages.values(), strict=True)):
            workload = _model(at_rate(one.spec, FREE), known).workload(stage, _decisions(one.spec)[stage])
            kernels = [k for phase in workload.phases for k in phase.kernels] + [*workload.decode]
            cases.append((kernels, float(np.mean([regions["encode"] + regions["decode"] for regions in by_rate]))))

    def errors(logs: np.ndarray) -> list[float]:
        rates = validate(Calibration, known | dict(zip(GUESS, np.exp(logs).tolist(), strict=True)), "a fit")
        return [np.log(max(seconds(kernels, rates), 1e-9) / max(took, 1e-9)) for kernels, took in cases]

    found = least_squares(errors, np.log([*GUESS.values()]), loss="soft_l1")
    return dict(zip(GUESS, np.exp(found.x).tolist(), strict=True))


def _links(timed: Sequence[Timed], limited: Sequence[str], known: dict[str, Any]) -> dict[str, float]:
    """What of the links makes the model's steps as long as they were, those of the floor too."""
    cases = [
        (_model(at_rate(one.spec, bits_per_second(rate) / 1e9), known), took)
        for one in timed
        for rate, took in one.step_s.items()
        if rate in limited
    ]
    staged = any(one.spec.parallel.pipeline > 1 for one in timed)

    def rates(parameters: np.ndarray) -> dict[str, float]:
        slowdown, latency, handling, *waits = (float(x) for x in parameters)
        found = {"link_efficiency": 1 / slowdown, "link_latency_us": latency}
        found |= {"endpoint_gbyte_s": 1 / handling} if handling > NO_TIME else {}
        return found | ({"sender_waits": waits[0]} if waits else {})

    def errors(parameters: np.ndarray) -> list[float]:
        guessed = validate(Calibration, known | rates(parameters), "a fit")
        steps = [model.elsewhere(model.spec, guessed).step(_decisions(model.spec)) for model, _ in cases]
        return [step.seconds / took - 1 for step, (_, took) in zip(steps, cases, strict=True)]

    guess, scale, bounds = [1.05, 100.0, 1.0], [0.1, 100.0, 1.0], [(1.0, 0.0, 0.0), (10.0, 1e5, 1e3)]
    if staged:  # only then anybody sends to a stage
        guess, scale, bounds = [*guess, 0.5], [*scale, 0.5], [(*bounds[0], 0.0), (*bounds[1], 1.0)]
    return rates(least_squares(errors, guess, bounds=bounds, x_scale=scale).x)


def _model(spec: RunSpec, known: dict[str, Any]) -> StepModel:
    return StepModel(spec, validate(Calibration, GUESS | known, "a guess"))


def _decisions(spec: RunSpec) -> list[Decision]:
    """What the method's policy, which looks at nothing, decides for the last step, on every stage."""
    settings, (stages, iterations) = spec.method.policy, (spec.parallel.pipeline, spec.training.iterations)
    policies = [POLICIES[settings.name](settings, Context(stage, stages, iterations, {})) for stage in range(stages)]  # type: ignore[attr-defined]
    return [policy.decide(iterations - 1) for policy in policies]
