"""Every EDGC variant on one recorded training run: trajectories that must not change unnoticed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import plain
from edgc.core.policies.policy import Context, Observation
from edgc.core.policies.stage_alignment import fit

GOLDEN = Path(__file__).parents[1] / "golden"
RUN = json.loads((GOLDEN / "recorded_run.json").read_text(encoding="utf-8"))
CASES = json.loads((GOLDEN / "recorded_trajectories.json").read_text(encoding="utf-8"))
SHAPES = {name: tuple(shape) for name, shape in RUN["shapes"].items()}
COSTS = [fit({r: [1e-3 + slope * r] for r in (2, 4, 8, 16, 32)}, [4e-3]) for slope in (1e-4, 1.5e-4)]
BACKWARD = (4e-4, 3e-4)


def observation(window: int, ranks: dict[str, int | None]) -> Observation:
    """The recorded window, its spectra cut to the ranks that were decided, and the errors those would have left."""
    spectrum, errors = {}, {}
    for name, rank in ranks.items():
        seen, error = RUN["spectrum"][name][window], RUN["relative_error"][name][window]
        if rank and seen:
            cut = sum(s * s for s in seen[rank:]) / sum(s * s for s in seen)
            spectrum[name], errors[name] = seen[:rank], math.sqrt(error**2 + (1 - error**2) * cut)
    return Observation(
        (window + 1) * RUN["window"] - 1,
        entropy={name: series[window] for name, series in RUN["entropy"].items()},
        relative_error=errors,
        spectrum=spectrum,
        loss=RUN["loss"][window],
        stage_entropy=RUN["stage_entropy"][window],
        backward_seconds=BACKWARD,
    )


def trajectory(case: dict[str, Any]) -> list[list[Any]]:
    """After each window, the rank of every matrix, and the set of its clamps."""
    kind = POLICIES[case["policy"]]
    settings = kind.Settings(name=case["policy"], window=RUN["window"], **case["options"])
    policy = kind(settings, Context(case["stage"], 2, 400, SHAPES, SHAPES, COSTS))
    decided = []
    for window in range(len(RUN["loss"])):
        policy.observe(observation(window, {n: plain(a) for n, a in policy.decide(0).by_parameter.items()}))  # type: ignore[misc]
        ranks, clamps = policy.decide(0), policy.clamps()
        decided.append([[plain(ranks.amount(name)) for name in SHAPES], [clamps[name] for name in SHAPES]])
    return decided


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_golden_trajectory(case: dict[str, Any]) -> None:
    assert trajectory(case) == case["decided"]


def test_the_run_spends_no_more_than_its_budget() -> None:
    """edgc_measured with mean_rank 8 on real spectra: within one unit of what fixed rank 8 costs, in every window."""
    (case,) = (c for c in CASES if c["options"].get("mean_rank") == 8)
    sizes = [sum(shape) for shape in SHAPES.values()]
    for ranks, _ in trajectory(case):
        if ranks[0] is not None:
            left = 8 * sum(sizes) - sum(rank * size for rank, size in zip(ranks, sizes, strict=True))
            assert 0 <= left < max(sizes)
