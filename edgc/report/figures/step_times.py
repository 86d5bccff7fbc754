"""Where the time of a step goes: by region, at each rate of the links, and under each definition of latency."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from edgc.report import vega
from edgc.report.figure import Figure
from edgc.report.figures.by_hardware import by_hardware, by_rate
from edgc.report.frames import STEP_SECONDS
from edgc.report.render import cell
from edgc.report.study import OF_LINE, WARMUP_STEPS, Study, central, lines, steady
from edgc.report.style import MARKERS, PALETTE, REGIONS, Look
from edgc.report.tables import times
from edgc.report.timed_steps import TimedSession
from edgc.report.vega import View

LABELS = {"bubble": "waiting for stages", "pipeline": "pipeline codec"}
HOVER = {"Method": "title", "Definition": "label", "Median (ms)": "seconds", "Shortest 20 % (ms)": "p20"}
HOVER |= {"Longest 20 % (ms)": "p80", "n (runs)": "runs", "n (steps)": "steps", "Hardware": "device"}


def _parts(steps: pd.DataFrame) -> pd.Series:
    """Seconds by region: means over the steps in the 20–80 % band of step time, so that they add up; NaN of none."""
    return central(steps)[list(STEP_SECONDS)].mean().rename(lambda name: name.removeprefix("t_"))


def _by_line(study: Study) -> Iterator[dict[str, object]]:
    """`_parts` of every line that has steps, the first of a run left out; `steps`: those in the band."""
    for line in lines(study.frames.runs):
        steps = steady(line.of(study.frames.steps))
        if count := len(central(steps)):
            yield {**line.identity, "n": len(line.measured), "steps": count, **_parts(steps)}


def _by_cell(study: Study) -> list[dict[str, object]]:
    """`_parts` of every rate and method; none where no step was counted."""
    own = TimedSession(study)
    rows = [
        {**line.identity, "rate": rate, "steps": len(central(own.steps(line, rate))), **_parts(own.steps(line, rate))}
        for line, rate in own.cells()
    ]
    return rows if any(row["steps"] for row in rows) else []


def draw_bars(data: pd.DataFrame, x_title: str) -> list[View]:
    """One bar per row, milliseconds, the first method on top; one without a counted step says so."""
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


def _latencies(study: Study) -> Iterator[pd.DataFrame]:
    """Seconds a step with 20 and 80 % quantiles: one row per line of the latency table and definition."""
    table = times.LATENCY.build(study)
    for name, (heading, _) in times.DEFINITIONS.items():
        columns = {f"{name}_s": "seconds", f"{name}_s_p20": "p20", f"{name}_s_p80": "p80"}
        yield table[table["steps"] > 0].rename(columns=columns).assign(definition=heading)


def _draw_latencies(data: pd.DataFrame) -> list[View]:
    """One model, milliseconds: a row for each method, the first on top, and in it a point for each definition."""
    ms = {name: 1e3 * data[name] for name in ("seconds", "p20", "p80")}
    rows = data.assign(label=data["definition"], **ms)
    looks = {
        name: Look(colour, marker, "solid")
        for name, colour, marker in zip(rows["label"].unique(), PALETTE, MARKERS, strict=False)
    }
    x = vega.axis("seconds", "communication latency (ms)", zero=True)
    y = vega.names()
    layers = [
        *vega.spread(rows, looks, x, y, "x", "p20", "p80"),
        *vega.points(rows, looks, x, y, HOVER, size=40),
    ]
    return [View(vega.beside(layers, looks), 24 * data["title"].nunique())]


STEP_BREAKDOWN = Figure(
    "Step time",
    "Where the time of a step goes, one bar per method.",
    {
        "Bar": f"means over the steps within the 20–80 % band of step time, the first {WARMUP_STEPS} of a run left out",
    },
    _by_line,
    lambda data: draw_bars(data, "time of a step on the first stage (ms)"),
    [*OF_LINE, "n", "steps", *REGIONS],
    by_hardware,
)
STEP_PARTS_ON_LINKS = Figure(
    "Step time by rate of the links",
    "Where the time of a step goes, one bar per method, on links of every rate of a session.",
    {"Bar": "means over the counted steps within the 20–80 % band of step time of a method and rate"},
    _by_cell,
    lambda data: draw_bars(data, "time of a step (ms)"),
    [*OF_LINE, "rate", "panel", "steps", *REGIONS],
    by_rate,
)
LATENCY = Figure(
    "Communication latency",
    "Communication latency under every definition, a row for each method.",
    {
        "Point": f"median over steps, the first {WARMUP_STEPS} of a run left out",
        "Thin line": "20 and 80 % quantiles",
    },
    _latencies,
    _draw_latencies,
    ["model", "method", "title", "device", "runs", "steps", "definition", "seconds", "p20", "p80"],
    by_hardware,
)
