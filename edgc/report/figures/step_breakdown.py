"""Where the time of a step goes, one bar per method."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import by_hardware
from edgc.report.frames import STEP_SECONDS
from edgc.report.render import cell
from edgc.report.study import WARMUP_STEPS, Study, central, lines, steady
from edgc.report.style import REGIONS, Look
from edgc.report.vega import View

TITLE = "Step time"
NOTE = {
    "Bar": f"means over the steps within the 20–80 % band of step time, the first {WARMUP_STEPS} of a run left out",
}

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


def draw(data: pd.DataFrame) -> list[View]:
    """One model's bars, milliseconds, first method on top."""
    return draw_bars(data, "time of a step on the first stage (ms)")


def draw_bars(data: pd.DataFrame, x_title: str) -> list[View]:
    """One bar per row; one without a counted step says so."""
    regions = [region for region in REGIONS if region in data]  # nor do figures as they were published have all
    ms = 1e3 * data[regions].fillna(0)  # old records lack a region
    total = ms.sum(axis=1)
    said = [f"{cell(ms)} ms" if steps else "not measured" for ms, steps in zip(total, data["steps"], strict=True)]
    parts = data[["title", "device", "steps"]].join(ms).melt(["title", "device", "steps"], regions, "region", "ms")
    parts["label"] = [LABELS.get(region, region) for region in parts["region"]]
    parts["order"] = parts["region"].map(regions.index)
    parts = parts[parts["ms"] > 0]  # a bar without width takes place in the file
    looks = {LABELS.get(region, region): Look(colour, "square", "solid") for region, colour in REGIONS.items()}
    seen = {label: look for label, look in looks.items() if label in set(parts["label"])}
    longest = 1.16 * float(total.max())
    x, y = vega.axis("ms", x_title, zero=True, ends=(0, longest or 1.0), nice=False), vega.names()
    hover = {"Method": "title", "Part": "label", "Milliseconds": "ms", "n (steps)": "steps", "Hardware": "device"}
    ends = data[["title"]].assign(ms=total, said=said)
    layers = [*vega.bars(parts, seen, x, y, hover), *vega.text(ends, x, y, "said", align="left", dx=4)]
    return [View(layers, 18 * len(data))]
