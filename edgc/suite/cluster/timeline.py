"""What every stage does in a step, as rows to draw: stages × time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edgc.suite.cluster.ask import of_method
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.step_parts import Step
from edgc.suite.cluster.trajectory import Trajectory
from edgc.suite.cluster.whole_run import simulate
from edgc.suite.config import Calibration, Method, RunSpec


def timeline(
    spec: RunSpec, methods: Sequence[Method], calibration: Calibration, trajectory: Trajectory, precision: str
) -> list[dict[str, Any]]:
    """Spans of a step of each method once its policy has settled: title, stage, room, what, begin, end (s).

    room: device or link. what: forward, backward, encode, wire, decode, embedding, optimizer, gather.
    """
    rows = []
    for method in methods:
        model = StepModel(of_method(spec, method), calibration, precision)
        step = simulate(model, trajectory).compressed.step
        rows += [{"title": method.title} | row for row in _rows(step)]
    return rows


def _rows(step: Step) -> Iterator[dict[str, Any]]:
    last, updated = len(step.spans) - 1, step.summed + step.embedding
    ready = updated + step.optimizer
    for stage, spans in enumerate(step.spans):
        tasks = [task for task in step.tasks if task.stage == stage]
        if tasks and any(span.what == "backward" for span in spans):
            tasks.pop()  # the exchange's spans have that backward, with what interrupts it
        for task in tasks:
            yield _row(stage, "device", task.kind, task.begin, task.end)
        for span in spans:
            yield _row(stage, span.room, span.what, span.begin, span.end)
        if step.embedding and stage in (0, last):
            yield _row(stage, "link", "embedding", step.summed, updated)
        yield _row(stage, "device", "optimizer", updated, ready)
        if step.seconds > ready:  # the others' part of the parameters
            yield _row(stage, "link", "gather", ready, step.seconds)


def _row(stage: int, room: str, what: str, begin: float, end: float) -> dict[str, Any]:
    return {"stage": stage, "room": room, "what": what, "begin": begin, "end": end}
