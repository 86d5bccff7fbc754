"""Communication latency and traffic of a step, under every definition of latency side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.report.frames import OTHER_BYTES
from edgc.report.render import cell, percent, with_band
from edgc.report.study import Line, Study, band, baseline_of, lines, reduction_percent, steady

TITLE = "Communication latency"

#: Definitions of communication latency, by the step regions that each adds up. Papers rarely say which they mean,
#: and the same run gives very different reductions under them.
DEFINITIONS = {
    "wire": ("wire", ("t_in_flight",)),
    "exchange": ("encode + wire + decode", ("t_encode", "t_in_flight", "t_decode")),
    "exposed": ("exposed", ("t_exposed",)),
    "everything": ("exposed + entropy + embedding + gather", ("t_exposed", "t_entropy", "t_embedding", "t_gather")),
}

CAPTION = {
    "All times": "of a step on the first pipeline stage: median (20–80 % quantiles) over steps and seeds",
    "All bytes": "sum over ranks, mean over all steps; MB = 10⁶ bytes",
    "Steps": "that count for times: without each run's first ones",
    "Compressed": "share of those steps that handed over less than fp32 gradients",
    "wire (ms)": "the gradients' collectives from launch to completion, summed; it includes waiting for the slower "
    "data-parallel peer",
    "encode + wire + decode": "the same with the method's own computing",
    "exposed": "what of the exchange blocks the step",
    "exposed + entropy + embedding + gather": "exposed, entropy estimation, the tied embedding's exchange, which "
    "includes waiting for the last stage's, and the gather of parameters that are sharded",
    "reduction: …": "how much less than the baseline on the same hardware",
    "Payload": "gradient bytes handed to collectives",
    "Wire (MB/step)": "gradient bytes sent",
    "Other traffic": "agreement, observation, tied embedding, pipeline and sharded parameters",
    "Payload compression": "uncompressed fp32 gradients divided by payload",
    "Wire compression": "the baseline's wire bytes divided by these",
}


def latency(steps: pd.DataFrame, definition: str) -> pd.Series:
    """Seconds of each step under a definition; NaN where a record lacks a part."""
    return steps[list(DEFINITIONS[definition][1])].sum(axis=1, skipna=False)


def build(study: Study) -> pd.DataFrame:
    """One row per line: `<definition>_s` with `_p20`, `_p80` (seconds), `_reduction_percent`; megabytes a step."""
    return pd.DataFrame([_row(line, study) for line in lines(study.frames.runs)])


def _row(line: Line, study: Study) -> dict[str, object]:
    steps = line.of(study.frames.steps)
    baseline = baseline_of(line, study)
    dense = baseline.of(study.frames.steps) if baseline else steps.head(0)
    counted = steady(steps)
    row: dict[str, object] = {**line.identity, "runs": len(line.measured), "steps": len(counted)}
    row["compressed_percent"] = 100 * (counted["payload_bytes"] < counted["dense_bytes"]).mean()
    for name in DEFINITIONS:
        median, low, high = band(latency(counted, name))
        row |= {f"{name}_s": median, f"{name}_s_p20": low, f"{name}_s_p80": high}
        row[f"{name}_reduction_percent"] = reduction_percent(median, band(latency(steady(dense), name))[0])
    means = steps.mean(numeric_only=True)
    wire = means["wire_bytes"]
    row["payload_mb"], row["wire_mb"] = means["payload_bytes"] / 1e6, wire / 1e6
    row["other_mb"] = means[list(OTHER_BYTES)].sum(min_count=1) / 1e6
    row["payload_compression"] = _ratio(means["dense_bytes"], means["payload_bytes"])
    row["wire_compression"] = _ratio(dense["wire_bytes"].mean(), wire)
    return row


def _ratio(reference: float, own: float) -> float:
    return reference / own if own else np.nan


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read: milliseconds and rounded."""
    shown = pd.DataFrame({"Model": table["model"], "Method": table["title"], "Status": table["status"]})
    shown["Hardware"] = table["device"]
    shown["Steps"] = table["steps"]
    shown["Compressed"] = table["compressed_percent"].map(percent)
    for name, (heading, _) in DEFINITIONS.items():
        shown[f"{heading} (ms)"] = [with_band(row, f"{name}_s", 1e3) for _, row in table.iterrows()]
        shown[f"reduction: {heading}"] = table[f"{name}_reduction_percent"].map(percent)
    shown["Payload (MB/step)"] = table["payload_mb"].map(cell)
    shown["Wire (MB/step)"] = table["wire_mb"].map(cell)
    shown["Other traffic (MB/step)"] = table["other_mb"].map(cell)
    shown["Payload compression"] = table["payload_compression"].map(lambda v: cell(v, suffix="×"))
    shown["Wire compression"] = table["wire_compression"].map(lambda v: cell(v, suffix="×"))
    return shown
