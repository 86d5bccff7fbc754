"""Communication latency and traffic of a step, under every definition of latency side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.report.frames import OTHER_BYTES
from edgc.report.render import cell, factor, milliseconds, percent, with_band
from edgc.report.study import Line, Study, banded, baseline_of, by_line, reduction_percent, steady
from edgc.report.table import IDENTITY, Column, Table

#: Definitions of communication latency, by the step regions that each adds up. Papers rarely say which they mean,
#: and the same run gives very different reductions under them.
DEFINITIONS = {
    "wire": ("wire", ("t_in_flight",)),
    "exchange": ("encode + wire + decode", ("t_encode", "t_in_flight", "t_decode")),
    "exposed": ("exposed", ("t_exposed",)),
    "everything": ("exposed + entropy + embedding + gather", ("t_exposed", "t_entropy", "t_embedding", "t_gather")),
}


def latency(steps: pd.DataFrame, definition: str) -> pd.Series:
    """Seconds of each step under a definition; NaN where a record lacks a part."""
    return steps[list(DEFINITIONS[definition][1])].sum(axis=1, skipna=False)


@by_line
def build(line: Line, study: Study) -> dict[str, object]:
    """One row per line: `<definition>_s` with `_p20`, `_p80` (seconds), `_reduction_percent`; megabytes a step."""
    steps = line.of(study.frames.steps)
    baseline = baseline_of(line, study)
    dense = baseline.of(study.frames.steps) if baseline else steps.head(0)
    counted = steady(steps)
    row: dict[str, object] = {"runs": len(line.measured), "steps": len(counted)}
    row["compressed_percent"] = 100 * (counted["payload_bytes"] < counted["dense_bytes"]).mean()
    for name in DEFINITIONS:
        own = latency(counted, name)
        row |= banded(f"{name}_s", own)
        row[f"{name}_reduction_percent"] = reduction_percent(own.median(), latency(steady(dense), name).median())
    means = steps.mean(numeric_only=True)
    wire = means["wire_bytes"]
    row["payload_mb"], row["wire_mb"] = means["payload_bytes"] / 1e6, wire / 1e6
    row["other_mb"] = means[list(OTHER_BYTES)].sum(min_count=1) / 1e6
    row["payload_compression"] = _ratio(means["dense_bytes"], means["payload_bytes"])
    row["wire_compression"] = _ratio(dense["wire_bytes"].mean(), wire)
    return row


def _ratio(reference: float, own: float) -> float:
    return reference / own if own else np.nan


def _latency(definition: str, text: str, name: str = "") -> dict[Column, str]:
    """A definition's seconds, what they are, and their reduction."""
    heading = DEFINITIONS[definition][0]
    seconds = with_band(f"{definition}_s", milliseconds)
    return {
        (Column(name, seconds) if name else Column(heading, seconds, unit="ms")): text,
        Column(f"reduction: {heading}", f"{definition}_reduction_percent", percent): "",
    }


TABLE = Table(
    "Communication latency",
    build,
    {
        "All times": "of a step on the first pipeline stage: median (20–80 % quantiles) over steps and seeds",
        "All bytes": "sum over ranks, mean over all steps; MB = 10⁶ bytes",
        **IDENTITY,
        Column("Steps", "steps"): "that count for times: without each run's first ones",
        Column("Compressed", "compressed_percent", percent): "share of those steps that handed over less than fp32 "
        "gradients",
        **_latency(
            "wire",
            "the gradients' collectives from launch to completion, summed; it includes waiting for the slower "
            "data-parallel peer",
            "wire (ms)",
        ),
        **_latency("exchange", "the same with the method's own computing"),
        **_latency("exposed", "what of the exchange blocks the step"),
        **_latency(
            "everything",
            "exposed, entropy estimation, the tied embedding's exchange, which includes waiting for the last stage's, "
            "and the gather of parameters that are sharded",
        ),
        "reduction: …": "how much less than the baseline on the same hardware",
        Column("Payload", "payload_mb", cell, "MB/step"): "gradient bytes handed to collectives",
        Column("Wire (MB/step)", "wire_mb", cell): "gradient bytes sent",
        Column("Other traffic", "other_mb", cell, "MB/step"): "agreement, observation, tied embedding, pipeline and "
        "sharded parameters",
        Column("Payload compression", "payload_compression", factor): "uncompressed fp32 gradients divided by payload",
        Column("Wire compression", "wire_compression", factor): "the baseline's wire bytes divided by these",
    },
)
