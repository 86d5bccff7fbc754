"""Where the time of a step goes, one bar per method."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.report import style
from edgc.report.figures.by_hardware import by_hardware
from edgc.report.frames import STEP_SECONDS
from edgc.report.render import cell
from edgc.report.study import WARMUP_STEPS, Study, central, lines, steady
from edgc.report.style import REGIONS

TITLE = "Step time"
NOTE = {
    "Bar": f"means over the steps within the 20–80 % band of step time, the first {WARMUP_STEPS} of a run left out",
}
ROWS = 1

LABELS = {"bubble": "waiting for stages", "pipeline": "pipeline codec"}


def build(study: Study) -> pd.DataFrame:
    """Seconds by region, one row per method: means over the steps in the 20–80 % band of step time, so they add up."""
    rows = []
    for line in lines(study.frames.runs):
        steps = central(steady(line.of(study.frames.steps)))
        if len(steps):
            parts = steps[list(STEP_SECONDS)].mean().rename(lambda name: name.removeprefix("t_"))
            rows.append({**line.identity, "n": len(line.measured), "steps": len(steps), **parts})
    return pd.DataFrame(rows, columns=["model", "method", "title", "device", "status", "n", "steps", *REGIONS])


panel = by_hardware


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model's bars, milliseconds, first method on top."""
    draw_bars(data, ax)
    ax.set_xlabel("time of a step on the first stage (ms)")


def height(data: pd.DataFrame) -> float:
    """Inches for the names of all bars of a panel."""
    by = data["panel"] if "panel" in data else panel(data)
    return style.height(int(by.value_counts().max()) if len(data) else 0)


def draw_bars(data: pd.DataFrame, ax: Axes) -> None:
    """One bar per row; one without a counted step says so."""
    positions = pd.Series(range(len(data)), index=data.index)
    left = pd.Series(0.0, index=data.index)
    for region, colour in REGIONS.items():
        if region not in data:  # nor do figures as they were published
            continue
        width = data[region].fillna(0) * 1e3  # old records lack a region
        seen = width > 0  # a bar without width takes place in the file
        if seen.any():
            look = {"color": colour, "label": LABELS.get(region, region), "edgecolor": "white", "linewidth": 0.4}
            ax.barh(positions[seen], width[seen], left=left[seen], height=0.68, **look)
        left = left + width
    for position, total, steps in zip(positions, left, data["steps"], strict=True):
        text = f"{cell(total)} ms" if steps else "not measured"
        ax.annotate(text, (total, position), (4, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set_yticks(positions, data["title"])
    ax.set_ylim(len(data) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.14)
    ax.set_xlim(left=0)
