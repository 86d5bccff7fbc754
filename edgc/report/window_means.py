"""Entropy over a run's steps, and how well a window's mean of some steps and elements stands for it.

A window's mean is held over the window that it is of: a step function. A policy gets one number per window and nothing
of how entropy moves inside, so nothing is interpolated, which would borrow from the next window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from edgc.core.policies.windowed import SampledSettings
from edgc.report.study import Line, Study

#: Share of the steps, at the start, in which entropy moves by far the most. That alone makes a correlation high (or
#: low), so that everything is also told without them (late). A policy's warm-up ends there at the earliest.
EARLY: float = SampledSettings.model_fields["warmup_fraction"].default
#: The paper's sampling of steps and elements.
ALPHA: float = SampledSettings.model_fields["alpha"].default
BETA: float = SampledSettings.model_fields["beta"].default
FULL = 1.0
MIN_PAIRS = 5  #: of a correlation that is told; three points nearly always lie on a line

#: What `followed` tells.
FOLLOWED = ("error", "inside", "correlation", "correlation_late", "used_late", "means_correlation_late")


@dataclass(frozen=True)
class EntropyTrajectory:
    """Entropy of one stage of one run by one estimator."""

    run_id: str
    stage: int
    estimator: str
    iterations: int
    window: int  #: steps, as the run's probe names it
    nats: pd.DataFrame  #: mean over the stage's matrices, by step (1-based), one column per rate of elements

    @property
    def late(self) -> float:
        """The last early step."""
        return EARLY * self.iterations


def trajectories(line: Line, study: Study) -> Iterator[EntropyTrajectory]:
    """Of every run of the line that had a probe, by run, stage and estimator."""
    entropies = line.of(study.frames.entropies)
    runs = {run["run_id"]: run for _, run in line.runs.iterrows()}
    stages = entropies[entropies["parameter"].isna()]
    for (run_id, stage, estimator), rows in stages.groupby(["run_id", "stage", "estimator"], sort=False):
        run = runs[run_id]
        iterations, window = int(run["spec.training.iterations"]), int(run["spec.training.probe.window"])
        nats = rows.pivot(index="step", columns="rate", values="entropy").sort_index()
        yield EntropyTrajectory(str(run_id), int(str(stage)), str(estimator), iterations, window, nats)


def interval(alpha: float) -> int:
    """Steps from one sample to the next, as a policy has it."""
    return round(1 / alpha)


def window_means(nats: pd.Series, window: int, every: int = 1, lag: int = 0) -> pd.Series:
    """By step (1-based) of the complete windows: the mean over every `every`-th step of its window, or of the `lag`-th
    window before (NaN where there is none)."""
    number = (nats.index - 1) // window
    sampled = (nats.index - 1) % window % every == 0
    means = nats[sampled].groupby(number[sampled]).mean()
    held = pd.Series(means.reindex(number - lag).to_numpy(), index=nats.index)
    return held[(number + 1) * window <= nats.index.max()]


def correlation(own: pd.Series, other: pd.Series) -> float:
    """Pearson's, over the index that both have; NaN with fewer than `MIN_PAIRS` values or where one is constant."""
    both = pd.concat({"own": own, "other": other}, axis=1).dropna()
    if len(both) < MIN_PAIRS or both.nunique().min() < 2:
        return np.nan
    return float(np.corrcoef(both["own"], both["other"])[0, 1])


def followed(trajectory: EntropyTrajectory, window: int, alpha: float = FULL, beta: float = FULL) -> dict[str, float]:
    """How well sampled means of `window` steps stand for the full entropy of every step. NaN for a rate not measured.

    In nats, means over steps:
    - error: the sampled against the full mean of the window;
    - inside: the full entropy against the full mean: what a window of this length loses however it is sampled.

    Correlations:
    - correlation: of the step function with the full entropy of every step;
    - correlation_late: the same over the windows that begin late;
    - used_late: the same for the mean of the window before, which is what a policy acts on;
    - means_correlation_late: of sampled with full means, one pair per window: leaves out what any window loses.
    """
    full = trajectory.nats[FULL]
    if beta not in trajectory.nats:
        return dict.fromkeys(FOLLOWED, np.nan)
    sampled, every = trajectory.nats[beta], interval(alpha)
    held, used = window_means(sampled, window, every), window_means(sampled, window, every, lag=1)
    whole = window_means(full, window)
    late = held.index > math.ceil(trajectory.late / window) * window
    ends = held.index % window == 0
    return {
        "error": float((held - whole).abs().mean()),
        "inside": float((full - whole).abs().mean()),
        "correlation": correlation(held, full),
        "correlation_late": correlation(held[late], full),
        "used_late": correlation(used[late], full),
        "means_correlation_late": correlation(held[late & ends], whole),
    }
