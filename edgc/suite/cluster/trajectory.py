"""What gradients do over a run: the entropy that policies follow, as a formula or as a run has recorded it.

Either has, by the share of the run that has passed (0 to 1), `entropy`, the mean of a stage's gradients in nats, and
`loss`, in nats a token; `origin` says in a sentence where the numbers are from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.lazy import pd


@dataclass(frozen=True)
class Parametric:
    """Entropy falls exponentially by `fall` nats, most of it within `scale` of the run; so does the loss.

    Assumed, not measured: what is known of a run's entropy is in the published experiment `observations`.
    """

    begin: float = -5.0
    fall: float = 1.0
    scale: float = 0.15
    stage_step: float = 0.1  #: nats by which a stage's gradients have less entropy than the stage before's

    @property
    def origin(self) -> str:
        return (
            f"assumed to fall by {self.fall:g} nat, with a scale of {self.scale:g} of the run, as EDGC's paper says; "
            "in our runs it rose (docs/edgc.md). It changes EDGC's forecasts only; --entropy RUN takes a recorded one"
        )

    def entropy(self, share: float, stage: int, stages: int) -> float:
        return self.begin - self.stage_step * stage - self.fall * (1 - math.exp(-share / self.scale))

    def loss(self, share: float) -> float:
        return 3.0 + 7.0 * math.exp(-share / self.scale)


@dataclass(frozen=True)
class Recorded:
    """A run's own record, stretched to the length of the run that is simulated; its stages spread over its."""

    origin: str
    shares: Sequence[float]
    entropies: Sequence[Sequence[float]]  #: nats by stage, then by share
    loss_shares: Sequence[float]
    losses: Sequence[float]

    @classmethod
    def read(cls, run: Path) -> Recorded:
        """From a run's folder. Raises `UserError` if no entropy was recorded there."""
        frame = pd.DataFrame(files.read_jsonl(run / "decisions.jsonl"))
        steps = pd.DataFrame(files.read_jsonl(run / "steps.jsonl"))
        if frame.empty or steps.empty or frame.get("entropy", pd.Series(dtype=float)).dropna().empty:
            raise UserError(f"{run}: no entropy on record; give the folder of a run whose policy follows entropy")
        length = steps["step"].max()
        means = frame.dropna(subset=["entropy"]).groupby(["step", "stage"])["entropy"].mean().unstack("stage").dropna()
        losses = steps.dropna(subset=["loss"])
        return cls(
            f"recorded by {run.name}",
            (means.index / length).tolist(),
            [means[stage].tolist() for stage in means.columns],
            (losses["step"] / length).tolist(),
            losses["loss"].tolist(),
        )

    def entropy(self, share: float, stage: int, stages: int) -> float:
        own = stage * len(self.entropies) // stages
        return float(np.interp(share, self.shares, self.entropies[own]))

    def loss(self, share: float) -> float:
        return float(np.interp(share, self.loss_shares, self.losses))


Trajectory = Parametric | Recorded
ASSUMED = Parametric()  #: where no run's record is given
