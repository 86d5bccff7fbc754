"""The cluster model's steps against the measured ones."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from edgc.report.study import Study
from edgc.report.style import look
from edgc.report.tables import predicted

TITLE = "Predicted and measured steps"
BAND = 10.0  #: percent
NOTE = {
    "Point": "a method at a rate, predicted before it was measured",
    "Hollow": "the calibration rests on a measurement of it; all others were held out",
    "Band": f"± {BAND:g} %",
}
ROWS = 2
WIDTH = 7.6
COLUMNS = ["model", "method", "title", "rate", "known", "predicted_s", "measured_s", "error_percent"]


def build(study: Study) -> pd.DataFrame:
    """Rows of the table `predicted` that were measured."""
    table = predicted.build(study)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    return table.loc[table["measured_s"].notna(), COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model: predicted against measured above, the error below."""
    above, below = axes
    ends = [0.9e3 * data["measured_s"].min(), 1.1e3 * data["measured_s"].max()]
    above.plot(ends, ends, color="#444444", linewidth=1)
    low, high = ([end * (1 + side * BAND / 100) for end in ends] for side in (-1, 1))
    above.fill_between(ends, low, high, color="#F0F0F0")
    below.axhline(0, color="#444444", linewidth=1)
    below.axhspan(-BAND, BAND, color="#F0F0F0", zorder=0)
    for (method, title), rows in data.groupby(["method", "title"], sort=False):
        style = look(str(method))
        for ax, y in ((above, 1e3 * rows["predicted_s"]), (below, rows["error_percent"])):
            ax.plot(1e3 * rows["measured_s"], y, style.marker, color=style.colour, label=str(title))
            known = rows["known"].astype(bool)
            ax.plot(
                1e3 * rows["measured_s"][known], y[known], style.marker, color=style.colour, markerfacecolor="white"
            )
    above.set_yscale("log")
    for ax in axes:
        ax.set_xscale("log")
        ax.set_xlim(*ends)
    for axis in (above.xaxis, above.yaxis, below.xaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    above.set_ylabel("predicted step (ms)")
    below.set_ylabel("error (%)")
    below.set_xlabel("measured step (ms)")
