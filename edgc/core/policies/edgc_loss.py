"""The released code's linear rank rule on the training loss instead of entropy, as a vendor's port of EDGC has it.

Nothing is sampled. That port projects on a random Q (aggregator `projection`).
"""

from __future__ import annotations

from typing import Literal

from edgc.core.policies.edgc_released import LinearRule
from edgc.core.policies.policy import Observation
from edgc.core.policies.windowed_settings import StepLimit, WindowedSettings


class EdgcLossSettings(WindowedSettings):
    """The released code's step limit; nothing about entropy."""

    name: Literal["edgc_loss"]
    step_limit: StepLimit = 4

    @property
    def reads_loss(self) -> bool:
        """The loss is all that it follows."""
        return True


class EdgcLoss(LinearRule):
    """The linear rule on the window's mean loss, which is the same on all stages."""

    Settings = EdgcLossSettings

    def _take(self, observation: Observation) -> bool:
        return self._follow(observation.loss)
