"""What the cluster model says of every method: time, latency, and whether it pays, under each set of assumptions."""

from __future__ import annotations

import json

import pandas as pd

from edgc.report.frames import LATENCIES
from edgc.report.render import cell, percent
from edgc.report.study import Study
from edgc.suite.config import Experiment

TITLE = "Training time and communication latency, simulated"

LATENCY_HEADINGS = {
    "wire": "wire",
    "exchange": "encode + wire + decode",
    "exposed": "exposed",
    "everything": "all traffic",
}

CAPTION = {
    "All numbers": "from the cluster model: nothing was measured",
    "Assumptions": "the set of assumptions in the experiment's file",
    "Rank by stage": "mean rank, ratio or bits of each pipeline stage once the policy has settled; one where all agree",
    "Step": "mean over the run, with the policy's warm-up",
    "Saved": "of the run's time, against the fastest method that compresses nothing",
    "± 20 %": "lowest and highest saving when the links' efficiency and the rates of the model's and of the exchange's "
    "arithmetic are each 20 % higher or lower",
    "Of fp32": "saved against dense in fp32 without overlap",
    "Pays below": "the link on which the method takes as long as the fastest that compresses nothing; it pays on "
    "slower ones",
    "Days": "of the whole run",
    "GPU-hours": "of the whole run, all GPUs",
    "Latency: …": "communication of a step under each definition in use: mean over the run, and how much less than "
    "dense fp32's",
    "Latency: wire": "the gradients' messages",
    "Latency: encode + wire + decode": "these and the exchange's own arithmetic",
    "Latency: exposed": "by how much the step would be shorter without the exchange of gradients",
    "Latency: all traffic": "wire, the tied embedding's exchange, tensor and pipeline parallelism",
}

SHARDS = {
    "Gather": "parameters come back from their owners in a step, once the policy has settled: seconds on the link, and "
    "of rounding them",
    "Gather, exposed": "by how much the step would be shorter without that",
    "Latency: all traffic": f"{CAPTION['Latency: all traffic']}, gathers of parameters",
}


def caption(experiment: Experiment) -> dict[str, str]:
    """`CAPTION`, with what only a sharded training has."""
    return CAPTION if experiment.training.shard == "none" else CAPTION | SHARDS


def build(study: Study) -> pd.DataFrame:
    """Rows of the frame `forecasts` that belong to no sweep."""
    forecasts = study.frames.forecasts
    return forecasts[forecasts["sweep"] == "none"].drop(columns="sweep").reset_index(drop=True)


def paragraph(table: pd.DataFrame) -> str:
    """The verdict under each set of assumptions."""
    said = table.drop_duplicates(["model", "assumption"])
    return "\n".join(
        f"{row['model']}, {row['assumption']}: {row['sentence']} ({row['source']})." for _, row in said.iterrows()
    )


def present(table: pd.DataFrame) -> pd.DataFrame:
    """As it is read: seconds and percent, rounded."""
    rows = [row for _, row in table.iterrows()]
    shown = pd.DataFrame({"Model": table["model"], "Assumptions": table["assumption"], "Method": table["title"]})
    shown["Rank by stage"] = table["amounts"].map(_amounts)
    shown["Step (s)"] = table["iteration_s"].map(cell)
    shown["Saved"] = table["saving_percent"].map(percent)
    shown["± 20 %"] = [f"{row['low_percent']:.1f} to {row['high_percent']:.1f} %" for row in rows]
    shown["Of fp32"] = table["saving_fp32_percent"].map(percent)
    shown["Pays below (Gbit/s)"] = table["break_even_gbit"].map(cell)
    shown["Days"] = table["days"].map(cell)
    shown["GPU-hours"] = table["gpu_hours"].map(lambda hours: f"{hours:.0f}")
    if "gather_s" in table:
        shown["Gather (s)"] = table["gather_s"].map(cell)
        shown["Gather, exposed (s)"] = table["gather_exposed_s"].map(cell)
    for kind in LATENCIES:
        heading = f"Latency: {LATENCY_HEADINGS[kind]} (s)"
        shown[heading] = [_latency(row[f"latency_{kind}_s"], row[f"latency_{kind}_percent"]) for row in rows]
    return shown


def _latency(seconds: float, less: float) -> str:
    return f"{cell(seconds)} ({-less:+.1f} %)".replace("-", "−") if less else cell(seconds)


def _amounts(text: str) -> str:
    """Ranks or ratios by stage; one where all are the same."""
    told = ["dense" if amount is None else f"{amount:.3g}" for amount in json.loads(text)]
    return told[0] if len(set(told)) == 1 else ", ".join(told)
