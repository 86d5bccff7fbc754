"""What the cluster model says of every method: time, latency, and whether it pays, under each set of assumptions."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd

from edgc.report.frames import LATENCIES
from edgc.report.render import cell, number, percent
from edgc.report.study import Study
from edgc.report.table import FORECAST, Column, Table
from edgc.suite.config import Experiment

#: By definition of communication latency: its name.
LATENCY_HEADINGS: dict[str, str] = dict(
    zip(LATENCIES, ("wire", "encode + wire + decode", "exposed", "all traffic"), strict=True)
)


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


def _amounts(text: str) -> str:
    """Ranks or ratios by stage; one where all are the same."""
    told = ["dense" if amount is None else f"{amount:.3g}" for amount in json.loads(text)]
    return told[0] if len(set(told)) == 1 else ", ".join(told)


def _latency(kind: str) -> Column:
    """Seconds, and how much less than dense fp32's."""

    def seconds(row: pd.Series) -> str:
        less = row[f"latency_{kind}_percent"]
        return cell(row[f"latency_{kind}_s"]) + (f" ({number(-less, '+.1f')} %)" if less else "")

    return Column(f"Latency: {LATENCY_HEADINGS[kind]}", seconds, unit="s")


def _gather(name: str, key: str) -> Column:
    return Column(name, key, cell, "s", when=lambda table: key in table)


def _sharded(text: str) -> Callable[[Experiment | None], str]:
    """A caption that only a sharded training has."""
    return lambda experiment: text if experiment and experiment.training.shard != "none" else ""


TABLE = Table(
    "Training time and communication latency, simulated",
    build,
    {
        **FORECAST,
        Column("Rank by stage", "amounts", _amounts): "mean rank, ratio or bits of each pipeline stage once the policy "
        "has settled; one where all agree",
        Column("Step", "iteration_s", cell, "s"): "mean over the run, with the policy's warm-up",
        Column("Saved", "saving_percent", percent): "of the run's time, against the fastest method that compresses "
        "nothing",
        Column("± 20 %", lambda row: f"{row['low_percent']:.1f} to {row['high_percent']:.1f} %"): "lowest and highest "
        "saving when the links' efficiency and the rates of the model's and of the exchange's arithmetic are each "
        "20 % higher or lower",
        Column("Of fp32", "saving_fp32_percent", percent): "saved against dense in fp32 without overlap",
        Column("Pays below", "break_even_gbit", cell, "Gbit/s"): "the link on which the method takes as long as the "
        "fastest that compresses nothing; it pays on slower ones",
        Column("Days", "days", cell): "of the whole run",
        Column("GPU-hours", "gpu_hours", "{:.0f}".format): "of the whole run, all GPUs",
        _gather("Gather", "gather_s"): "",
        _gather("Gather, exposed", "gather_exposed_s"): "",
        "Latency: …": "communication of a step under each definition in use: mean over the run, and how much less than "
        "dense fp32's",
        _latency("wire"): "the gradients' messages",
        _latency("exchange"): "these and the exchange's own arithmetic",
        _latency("exposed"): "by how much the step would be shorter without the exchange of gradients",
        _latency("everything"): lambda experiment: (
            "wire, the tied embedding's exchange, tensor and pipeline "
            f"parallelism{_sharded(', gathers of parameters')(experiment)}"
        ),
        "Gather": _sharded(
            "parameters come back from their owners in a step, once the policy has settled: seconds on the link, and "
            "of rounding them"
        ),
        "Gather, exposed": _sharded("by how much the step would be shorter without that"),
    },
    paragraph,
)
