"""Accordion: much where the gradient's norm changes fast, little elsewhere (arXiv 2010.16248, algorithm 1).

A critical regime is a window whose norm N differs from the window before's by |N_before − N| / N_before ≥ η: the
parameter then has the higher amount, else the lower one. So it has before there are two windows to compare, and after
one whose norm was 0, as in the authors' code.

The paper's norm is of gradients added up over an epoch, kept for it. Here N² is the mean over the window's steps of
‖ḡ‖², of what the exchange gave: no copy of the gradient is kept. The paper also switches where the learning rate
decays in steps; with a smooth schedule no step decays, so that rule is left out.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from edgc.core.policies.ladder import LadderPolicy, LadderSettings, Share, Whole
from edgc.core.policies.policy import Context, Observation


class AccordionSettings(LadderSettings):
    """Two amounts, and when to change between them."""

    name: Literal["accordion"]
    ranks: tuple[Whole, Whole] | None = Field(None, description="Lower and higher rank; or give ratios or bits")
    ratios: tuple[Share, Share] | None = Field(None, description="Lower and higher share of the elements that travel")
    bits: tuple[Whole, Whole] | None = Field(None, description="Fewer and more bits of every element")
    eta: float = Field(0.5, ge=0, description="η: relative change of the norm from which on a window is critical")
    granularity: Literal["parameter"] = Field("parameter", description="Whose norm: every parameter's for itself")
    window: int = Field(1000, ge=1, description="Steps from one look at the norm to the next (paper: 10 epochs)")


class Accordion(LadderPolicy):
    """The higher amount in critical regimes. A norm that is missing or not finite changes nothing."""

    Settings = AccordionSettings
    norms = True
    kept = ("norms", "calm")

    def __init__(self, settings: AccordionSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._norms: dict[str, float] = {}  # of the last window
        self._calm: list[str] = []  # what has the lower amount

    def _place(self, name: str) -> int:
        return int(name not in self._calm)

    def observe(self, observation: Observation) -> None:
        """Compare norms with the last window's."""
        for name in self._names:
            norm = observation.norm.get(name, math.nan)
            if not math.isfinite(norm):
                continue
            before = self._norms.get(name)
            calm = bool(before) and abs(before - norm) / before < self._settings.eta  # type: ignore[operator]
            self._calm = [each for each in self._calm if each != name] + [name] * calm
            self._norms[name] = norm
