"""EDGC's rank rule as the authors' public code intends it: linear in how much entropy changes, relative to its
first change.

    r = r_min + (r_max − r_min)·|H̄_cur − H̄_prev| / |H̄_2 − H̄_1|

H̄ are window means of the stage, H̄_1 and H̄_2 the first two. Where those are equal there is no scale to measure by:
the first change that is not zero takes its place, and until there is one the rank stays. The rank is rounded,
clamped, limited to ±4 a window and made even. The direction of the change does not matter to it.

Stages are aligned by straight lines between the timed exchanges, floored to a multiple of 4, plus 4; that code has
no case in which a stage has time enough to send uncompressed.

`edgc_loss` is the same rule on the training loss, as a vendor's port of EDGC has it: nothing is sampled. That port
projects on a random Q (aggregator `projection`).
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from edgc.core.policies.policy import Context, Observation
from edgc.core.policies.stage_alignment import ExchangeCost, interpolated_rank
from edgc.core.policies.windowed import AlignedSettings, Estimator, StepLimit, Windowed, WindowedSettings


class EdgcReleasedSettings(AlignedSettings):
    """The released code's estimator and step limit."""

    name: Literal["edgc_released"]
    estimator: Estimator = "histogram"
    step_limit: StepLimit = 4


class LinearRule(Windowed):
    """The rank is linear in the change of what is followed from window to window."""

    even: ClassVar[bool] = True
    kept = (*Windowed.kept, "scale")

    def __init__(self, settings: WindowedSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._scale: float | None = None  # |H̄_2 − H̄_1|

    def observe(self, observation: Observation) -> None:
        super().observe(observation)
        self._scale = self._scale or self._change

    def _apply_rule(self) -> None:
        if self._change is None or not self._scale:
            return
        for group in self._groups:
            low, high = self._bounds(group)
            self._move(group, round(low + (high - low) * self._change / self._scale))


class EdgcReleased(LinearRule):
    """The linear rule on the entropy of a histogram."""

    Settings = EdgcReleasedSettings

    def _align(self, lead_rank: int | None, lead: ExchangeCost, own: ExchangeCost) -> float | None:
        return 4 * math.floor(interpolated_rank(lead_rank, lead, own, self._slack) / 4) + 4


class EdgcLossSettings(WindowedSettings):
    """The released code's step limit; nothing about entropy."""

    name: Literal["edgc_loss"]
    step_limit: StepLimit = 4
    reads_loss: ClassVar[bool] = True


class EdgcLoss(LinearRule):
    """The linear rule on the window's mean loss, which is the same on all stages."""

    Settings = EdgcLossSettings

    def _take(self, observation: Observation) -> bool:
        return self._follow(observation.loss)
