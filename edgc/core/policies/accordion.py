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
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from edgc.core.base.errors import UserError
from edgc.core.policies.amounts import Amount
from edgc.core.policies.ladder_settings import LadderSettings, Share, Whole
from edgc.core.policies.policy import Context, Decision, Observation, Policy


class AccordionSettings(LadderSettings):
    """Two amounts, and when to change between them."""

    name: Literal["accordion"]
    ranks: tuple[Whole, Whole] | None = Field(None, description="Lower and higher rank; or give ratios or bits")
    ratios: tuple[Share, Share] | None = Field(None, description="Lower and higher share of the elements that travel")
    bits: tuple[Whole, Whole] | None = Field(None, description="Fewer and more bits of every element")
    eta: float = Field(0.5, ge=0, description="η: relative change of the norm from which on a window is critical")
    granularity: Literal["parameter", "model"] = Field(
        "parameter", description="Whose norm: every parameter's for itself, or the whole model's for all"
    )
    window: int = Field(1000, ge=1, description="Steps from one look at the norm to the next (paper: 10 epochs)")


MODEL = "model"  #: the one group where the whole model's norm counts


class Accordion(Policy):
    """The higher amount in critical regimes. A norm that is missing or not finite changes nothing."""

    Settings = AccordionSettings
    norms = True

    def __init__(self, settings: AccordionSettings, context: Context) -> None:
        if settings.window >= context.iterations:
            raise UserError(
                f"method.policy.window = {settings.window}: the run has {context.iterations} exchanges, so no window "
                "would ever be compared; make the window shorter or the run longer, or use policy fixed"
            )
        self._settings, self._names = settings, sorted(context.shapes)
        self.window = settings.window
        self._norms: dict[str, float] = {}  # of the last window, by parameter or MODEL
        self._calm: set[str] = set()  # what has the lower amount

    @property
    def span(self) -> tuple[Amount, Amount]:
        """Both amounts."""
        low, high = self._settings.amounts
        return low, high

    def observe(self, observation: Observation) -> None:
        """Compare norms with the last window's."""
        if self._settings.granularity == "model":
            seen = {MODEL: math.hypot(*observation.stage_norm)} if observation.stage_norm else {}
        else:
            seen = {name: observation.norm[name] for name in self._names if name in observation.norm}
        for group, norm in seen.items():
            if not math.isfinite(norm):
                continue
            before = self._norms.get(group)
            calm = bool(before) and abs(before - norm) / before < self._settings.eta  # type: ignore[operator]
            self._calm = self._calm | {group} if calm else self._calm - {group}
            self._norms[group] = norm

    def decide(self, step: int) -> Decision:
        """The lower amount for what is calm, else the higher one; dense before `start_step`."""
        if step < self._settings.start_step:
            return Decision()
        low, high = self._settings.amounts
        if self._settings.granularity == "model":
            return Decision(low if MODEL in self._calm else high)
        return Decision(high, {name: low if name in self._calm else high for name in self._names})

    def explain(self) -> Mapping[str, Any]:
        """`clamp`: r_min where calm, r_max in a critical regime."""
        one = self._settings.granularity == "model"
        calm = {name: (MODEL if one else name) in self._calm for name in self._names}
        return {"clamp": {name: "r_min" if lower else "r_max" for name, lower in calm.items()}}

    def state_dict(self) -> dict[str, Any]:
        return {"norms": dict(self._norms), "calm": sorted(self._calm)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._norms, self._calm = dict(state["norms"]), set(state["calm"])
