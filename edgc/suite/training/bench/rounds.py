"""Interleaved timing: every implementation once a round, so that a disturbance hits all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch


class Times(NamedTuple):
    """Seconds over the rounds."""

    p20: float
    median: float
    p80: float


def interleaved(work: Mapping[str, Callable[[], object]], device: str, rounds: int, seconds: float) -> dict[str, Times]:
    """Times of each implementation in `rounds` rounds after one that does not count.

    More rounds if they take less than `seconds` in all, up to ten times as many. In every other round the order is
    reversed. On a GPU an implementation runs until its kernels have ended.
    """
    found: dict[str, list[float]] = {name: [] for name in work}
    begin, done = time.perf_counter(), 0
    while done <= rounds or (time.perf_counter() - begin < seconds and done <= 10 * rounds):
        for name in list(work) if done % 2 else reversed(list(work)):
            took = _once(work[name], device)
            if done:
                found[name].append(took)
        done += 1
    return {name: Times(*np.quantile(times, (0.2, 0.5, 0.8)).tolist()) for name, times in found.items()}


def _once(work: Callable[[], object], device: str) -> float:
    if device == "cpu":
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3
