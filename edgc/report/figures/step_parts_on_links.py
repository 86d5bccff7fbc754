"""Where the time of a step goes, one bar per method, on links of every rate of a session."""

from __future__ import annotations

import pandas as pd

from edgc.report.figures.step_breakdown import draw_bars
from edgc.report.frames import STEP_SECONDS
from edgc.report.study import Study, central
from edgc.report.style import REGIONS
from edgc.report.timed_steps import TimedSession, spoken
from edgc.report.vega import View

TITLE = "Step time by rate of the links"
NOTE = {
    "Bar": "means over the counted steps within the 20–80 % band of step time of a method and rate",
}


def build(study: Study) -> pd.DataFrame:
    """Seconds by region, one row per rate and method; NaN where no step was counted. One panel per rate."""
    own = TimedSession(study)
    rows = []
    for model in own.models:
        for rate in own.rates:
            panel = spoken(rate) if len(own.models) == 1 else f"{model}, {spoken(rate)}"  # the caption names one
            for line in (line for line in own.lines if line.model == model):
                steps = central(own.steps(line, rate))
                parts = steps[list(STEP_SECONDS)].mean().rename(lambda name: name.removeprefix("t_"))
                rows.append({**line.identity, "rate": rate, "panel": panel, "steps": len(steps), **parts})
    table = pd.DataFrame(
        rows, columns=["model", "method", "title", "device", "status", "rate", "panel", "steps", *REGIONS]
    )
    return table if table["steps"].any() else table.head(0)


def draw(data: pd.DataFrame) -> list[View]:
    """One rate's bars, milliseconds, first method on top."""
    return draw_bars(data, "time of a step (ms)")
