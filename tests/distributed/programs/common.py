"""What programs of ranks have in common: a report by case, a rank's batch, a word that all agree on, a state's file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from engine_losses import GLOBAL, MICRO, SEQ

from edgc.suite.backends.megatron.process import Place, join, leave, seed_everything
from edgc.suite.config import RunSpec
from edgc.suite.training.data.dataset import rank_batches


def reported(
    cases: Iterable[str], spec_of: Callable[[str], RunSpec], found: Callable[[str, RunSpec, Place], Any]
) -> None:
    """Have rank 0 print what is `found` of each case, by case. Ranks join as the first case's spec says."""
    place: Place | None = None
    report = {}
    for case in cases:
        spec = spec_of(case)
        place = place or join(spec)
        seed_everything(spec.seed, place)
        report[case] = found(case, spec, place)
    assert place is not None
    if place.rank == 0:
        print(json.dumps(report))
    leave()


def rows(text: np.ndarray, place: Place, data: int) -> np.ndarray:
    """A rank's of a global batch, on `data` replicas."""
    return text[rank_batches(np.arange(GLOBAL), place.data, data, MICRO)]


def batch(step: int, place: Place, data: int) -> np.ndarray:
    return rows(np.random.default_rng(step).integers(0, 40, (GLOBAL, SEQ + 1)), place, data)


def everywhere(own: bool) -> bool:
    """Whether it is so on every rank."""
    flag = torch.tensor(int(own))
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag)


def through_a_file(state: Any, weights_only: bool = True) -> Any:
    """As it is read where it was saved."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)
