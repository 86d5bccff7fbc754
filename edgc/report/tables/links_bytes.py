"""What every method sent on links of each rate: our ledger beside what the network interfaces counted."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.report import timed_steps as session
from edgc.report.frames import OTHER_BYTES
from edgc.report.render import cell
from edgc.report.study import Line
from edgc.report.table import Column, Table
from edgc.report.timed_steps import TimedSession


@session.by_cell
def build(own: TimedSession, line: Line, rate: str) -> dict[str, float]:
    """One row per model, rate and method, in the experiment's order: `<what>_mb` a step, and ledger_share.

    No share where nothing was charged to the ledger: no exchange, or PyTorch's own hook.
    """
    steps = own.steps(line, rate)
    means = steps[["payload_bytes", "wire_bytes", *OTHER_BYTES, "interface_bytes"]].astype(float).mean() / 1e6
    ledger = means["wire_bytes"] + means[list(OTHER_BYTES)].sum()
    sent = means["interface_bytes"]
    compared = means["wire_bytes"] > 0 and sent > 0
    return {
        "payload_mb": means["payload_bytes"],
        "wire_mb": means["wire_bytes"],
        "ledger_mb": ledger if len(steps) else np.nan,
        "interface_mb": sent,
        "ledger_share": ledger / sent if compared else np.nan,
    }


def paragraph(table: pd.DataFrame) -> str:
    """Where ledger and interfaces disagree most."""
    shares = table["ledger_share"].dropna() if len(table) else pd.Series(dtype=float)
    if shares.empty:
        return "The ledger could not be held against the interfaces' bytes."
    row = table.loc[(shares - 1).abs().idxmax()]
    return (
        f"Ledger and interfaces disagree most for {row['title']} {session.at(row['rate'])}: the ledger has "
        f"{cell(row['ledger_share'])} times the bytes that the interfaces sent."
    )


TABLE = Table(
    "Bytes on links of several rates",
    build,
    {
        "All numbers": "MB (10⁶ bytes) a counted step: mean over steps, sum over ranks",
        **session.identity(),
        Column("Payload", "payload_mb", cell, "MB/step"): "gradient bytes handed to collectives",
        Column("Wire", "wire_mb", cell, "MB/step"): "what ring algorithms send for them",
        Column("Ledger", "ledger_mb", cell, "MB/step"): "wire, and all other traffic that is charged, as it is sent: "
        "agreement, observation, tied embedding, pipeline, sharded parameters",
        Column("Interface", "interface_mb", cell, "MB/step"): "what the ranks' network interfaces sent in packets, "
        "without the packets' headers",
        Column("Ledger / interface", "ledger_share", cell): "1 where both agree; – where nothing was charged. The "
        "ledger does not count what gloo and the framework send themselves; the floor's row shows how much that is",
    },
    paragraph,
)
