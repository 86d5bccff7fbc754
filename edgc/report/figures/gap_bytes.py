"""What compression costs in loss, against the bytes it leaves: one point per method."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

from edgc.report.figures.by_hardware import named_by_hardware
from edgc.report.figures.curves import FILLS
from edgc.report.study import Study, baseline_of, lines
from edgc.report.style import look
from edgc.report.tables import variants

TITLE = "Loss gap against payload"
NOTE = {
    "Point": "mean over seeds, with bars from the lowest to the highest",
    "Dotted": "fixed ranks",
    "Read": "lower left is better",
}
ROWS = 1

COLUMNS = ["model", "method", "title", "device", "n", "fixed", "baseline"]
COLUMNS += [f"{what}{suffix}" for what in ("payload", "gap") for suffix in ("", "_low", "_high")]


def build(study: Study) -> pd.DataFrame:
    """One row per line but the baseline: payload (bytes of a run) and gap to the baseline (nats), mean, low and high.

    `fixed`: whether its rank is fixed.
    """
    rows = []
    for line in lines(study.frames.runs):
        own = variants.by_seed(line, study).dropna(subset=["gap", "payload_bytes"])
        baseline = baseline_of(line, study)
        if own.empty or baseline is None:
            continue
        fixed = line.method in {other.method for other in variants.fixed_ranks(line, study)}
        row = {"model": line.model, "method": line.method, "title": line.title, "device": line.device}
        row |= {"n": len(own), "fixed": fixed, "baseline": baseline.title}
        for name, values in (("payload", own["payload_bytes"]), ("gap", own["gap"])):
            row |= {name: values.mean(), f"{name}_low": values.min(), f"{name}_high": values.max()}
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model's points; fixed ranks of the same hardware are joined."""
    devices = list(data["device"].unique())
    for _, row in data.iterrows():
        style = look(row["method"])
        label = named_by_hardware(row["title"], row["device"], data["device"])
        ax.errorbar(
            row["payload"], row["gap"], xerr=_bars(row, "payload"), yerr=_bars(row, "gap"), label=label,
            color=style.colour, marker=style.marker, markersize=6, linestyle="none", elinewidth=1, capsize=2,
            fillstyle=FILLS[devices.index(row["device"]) % len(FILLS)],
        )  # fmt: skip
    for _, fixed in data[data["fixed"]].sort_values("payload").groupby("device"):
        colour = look(fixed["method"].iloc[0]).colour
        ax.plot(fixed["payload"], fixed["gap"], color=colour, linestyle=":", linewidth=1, marker="", zorder=1)
    ax.axhline(0, color="#888888", linewidth=0.8)
    ax.set_xscale("log")
    decades = data["payload_high"].max() > 5 * data["payload_low"].min()
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if decades else MaxNLocator(6, steps=(1, 2, 5, 10)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))
    ax.set_xlabel("gradient bytes handed over in a run, all ranks")
    ax.set_ylabel(f"loss gap to {data['baseline'].iloc[0]} (nats/token)")


def _bars(row: pd.Series, name: str) -> list[list[float]]:
    return [[row[name] - row[f"{name}_low"]], [row[f"{name}_high"] - row[name]]]
