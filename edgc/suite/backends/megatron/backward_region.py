"""Megatron's backward passes as a region of their own: what EDGC's stage alignment has to know."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from megatron.core.pipeline_parallel import schedules

from edgc.core.comm.telemetry import StepClock


@contextlib.contextmanager
def backward_region(clock: StepClock) -> Iterator[None]:
    """Charge every `backward_step` of megatron's schedules inside to the region `backward`.

    The last one of a step is EDGC's T_mb: the later stages are done by then, so where stages share a machine's cores
    it is shorter than the others. Forward passes stay in the caller's region; an exchange that starts during backward
    has its own, and so has waiting for other stages (`pipeline.BUBBLE`).
    """
    plain = schedules.backward_step

    def timed(*arguments: Any, **options: Any) -> Any:
        with clock.region("backward"):
            return plain(*arguments, **options)

    schedules.backward_step = timed
    try:
        yield
    finally:
        schedules.backward_step = plain
