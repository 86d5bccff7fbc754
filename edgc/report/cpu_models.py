"""Models of CPU taken as one, for losses alone: a model changes how sums round, not what is computed. Times never mix.

GPUs stay apart: their models differ in more than the order of sums.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pandas as pd

from edgc.report.collect import device_name
from edgc.report.frames import Frames
from edgc.report.study import Study

KIND, COUNT, TRACE = "manifest.device.kind", "manifest.device.count", "manifest.link.trace"


def pooled(study: Study) -> Study:
    """The study with frames as `pooled_frames` gives them."""
    return replace(study, frames=pooled_frames(study.frames))


def pooled_frames(frames: Frames) -> Frames:
    """The same records. `device` names every CPU model that runs of a model (GPT-2's) and of so many processes had.

    So a method's seeds are one line wherever they ran: `4 processes on AMD EPYC or Intel(R) Xeon(R) Processor`.
    """
    names = _names(frames.runs)
    if not names:
        return frames
    return Frames(**{own.name: _renamed(getattr(frames, own.name), names) for own in fields(Frames)})


def _names(runs: pd.DataFrame) -> dict[str, str]:
    """The device of each run on CPUs, by its id."""
    if not {KIND, COUNT} <= {*runs.columns}:
        return {}
    cpus = runs[runs[KIND] == "cpu"]
    names: dict[str, str] = {}
    for _, own in cpus.groupby([column for column in ("model", COUNT, TRACE) if column in runs], dropna=False):
        first, models = own.iloc[0], " or ".join(sorted(set(own["manifest.device.model"])))
        device = {"kind": "cpu", "count": int(first[COUNT]), "model": models}
        trace = first.get(TRACE)
        names |= dict.fromkeys(own["run_id"], device_name(device, None if pd.isna(trace) else trace))
    return names


def _renamed(table: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    if "run_id" not in table:
        return table
    return table.assign(device=table["run_id"].map(names).astype("string").fillna(table["device"]))
