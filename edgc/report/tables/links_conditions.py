"""How a timing session was measured: its fastest steps, what else the machine did, and the links."""

from __future__ import annotations

import pandas as pd

from edgc.report import timed_steps as session
from edgc.report.render import cell, milliseconds, percent
from edgc.report.study import Line, Study
from edgc.report.table import Column, Table
from edgc.report.timed_steps import TimedSession


@session.by_cell
def build(own: TimedSession, line: Line, rate: str) -> dict[str, object]:
    """One row per model, rate and method, in the experiment's order: seconds, shares and Mbit/s (see `TABLE`)."""
    steps, floor = own.steps(line, rate), own.steps(own.floor(line), rate)
    return {
        "achieved_mbit": session.achieved(line, rate),
        "step_s_min": steps["t_step"].min(),
        "exposed_s_min": steps["t_step"].min() - floor["t_step"].min(),
        "foreign_load": steps["foreign_load"].max(),
        "disturbed": disturbed(steps, own.study),
        "slower": steps["slower"].astype(float).max(),
    }


def disturbed(steps: pd.DataFrame, study: Study) -> bool:
    """Whether others used more of the machine during these steps than the experiment allows."""
    timing = study.experiment.timing
    return bool(timing and steps["foreign_load"].max() > timing.foreign_load)


def paragraph(table: pd.DataFrame) -> str:
    """Whether others disturbed the session."""
    many = int(table["disturbed"].sum()) if len(table) else 0
    if not many:
        return "Others used no more of the machine than allowed."
    load = percent(100 * table["foreign_load"].max())
    return f"Others used more of the machine than allowed in {many} of {len(table)} rows, up to {load}."


def _load(row: pd.Series) -> str:
    return percent(100 * row["foreign_load"]) + (", disturbed" if row["disturbed"] else "")


TABLE = Table(
    "Conditions on links of several rates",
    build,
    {
        **session.identity(),
        Column("Steps", "steps"): "that count: without warm-up and settling",
        Column("Lowest step", "step_s_min", milliseconds, "ms"): "the fastest of them",
        Column("Exposed from minima", "exposed_s_min", milliseconds, "ms"): "the lowest step less the floor's lowest. "
        "The floor is the method without any exchange",
        Column("Others' load", _load): "largest share of the machine's cores that others used during a cell; "
        "“disturbed”: above the experiment's limit",
        Column("Cores' time", "slower", cell, "× best"): "for the same work, right before a cell: of the slowest core "
        "in the slowest cell, in units of the session's best",
        Column("Link", "achieved_mbit", cell, "Mbit/s"): "what a rank sent in a plain dense all-reduce at this rate",
    },
    paragraph,
)
