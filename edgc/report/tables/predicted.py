"""What the cluster model predicted of a timing, beside what was measured then."""

from __future__ import annotations

import math

import pandas as pd

from edgc.report import timed_steps as session
from edgc.report.render import cell, milliseconds, percent, with_band, yes_or_no
from edgc.report.study import Line, Study, banded, reduction_percent
from edgc.report.table import HARDWARE, METHOD, MODEL, Column, Table
from edgc.report.timed_steps import TimedSession

CLEAR = 3.0  #: percent of a step; the sign of a smaller saving is not judged


def build(study: Study) -> pd.DataFrame:
    """One row per model, method and rate that was predicted: seconds, percent, points."""
    own, forecasts = TimedSession(study), study.frames.forecasts
    predicted = {
        (row["model"], row["method"], row["rate"]): row
        for row in forecasts[forecasts["sweep"] == "measured"].to_dict("records")
    }
    rows = []
    for line in own.lines:
        baseline = own.baseline(line)
        for rate in own.rates:
            if (said := predicted.get((line.model, line.method, rate))) is None:
                continue
            steps, theirs = own.steps(line, rate), own.steps(baseline, rate)
            reference = predicted.get((line.model, study.experiment.judgement.baseline, rate), {})
            row = {**line.identity, "rate": rate, "known": bool(said["known"]), "steps": len(steps)}
            row |= {"predicted_s": said["iteration_s"], "measured_s": steps["t_step"].min()}
            row |= banded("step_s", steps["t_step"])
            row["error_percent"] = -reduction_percent(said["iteration_s"], row["measured_s"])
            floor = own.floor(line)
            alone = own.steps(floor if floor and _between_stages(floor) == _between_stages(line) else None, rate)
            row["floor_error_percent"] = -reduction_percent(said["floor_s"], alone["t_step"].min())
            row["saving_percent"] = reduction_percent(row["measured_s"], theirs["t_step"].min())
            row["predicted_saving_percent"] = reduction_percent(
                said["iteration_s"], reference.get("iteration_s", math.nan)
            )
            rows.append(row)
    table = pd.DataFrame(rows)
    if not table.empty:
        table["saving_error_points"] = table["predicted_saving_percent"] - table["saving_percent"]
        table["right_sign"] = right_sign(table["saving_percent"], table["predicted_saving_percent"])
    return table


def right_sign(measured: pd.Series, predicted: pd.Series) -> pd.Series:
    """Whether savings (percent) have their prediction's sign; missing where that is not judged."""
    judged = (measured.abs() > CLEAR) & predicted.notna()
    return (measured * predicted > 0).astype("boolean").where(judged)


def _between_stages(line: Line) -> list[object]:
    """The codecs of what stages send each other."""
    return [line.runs.iloc[0].get(f"spec.method.pipeline.{way}.name") for way in ("forward", "backward")]


def paragraph(table: pd.DataFrame) -> str:
    """How far off the model was where the calibration had no point."""
    if table.empty:
        return "Nothing was predicted."
    held_out = table[~table["known"] & table["measured_s"].notna()]
    if held_out.empty:
        return "Nothing of what was held out was measured."
    error, saving = held_out["error_percent"].abs(), held_out["saving_error_points"].abs()
    floor = held_out["floor_error_percent"].dropna()
    without = f"\nThe step without any exchange of gradients is off by {percent(floor.mean())} on average."
    worst, judged = held_out.iloc[int(error.to_numpy().argmax())], held_out["right_sign"].dropna()
    return (
        f"Of {len(table)} points {len(held_out)} were held out.\n"
        f"The predicted step is off by {percent(error.mean())} on average and by {percent(error.max())} at most "
        f"({worst['title']} at {session.spoken(worst['rate'])}).\n"
        f"What is saved of it is off by {cell(saving.mean())} points on average and by {cell(saving.max())} at most.\n"
        f"Whether a method saves or loses was right in {int(judged.sum())} of {len(judged)}."
        f"{'' if floor.empty else without}"
    )


RIGHT_SIGN = {
    Column("Right sign", "right_sign", yes_or_no): "whether saving or loss was predicted; judged where it is more than "
    f"{CLEAR:g} %"
}
PREDICTED = Table(
    "Predicted and measured",
    str(__doc__),
    build,
    {
        MODEL: "",
        Column("Rate", "rate", session.spoken): "",
        METHOD: "",
        HARDWARE: "",
        Column(
            "Held out", "known", lambda known: yes_or_no(not known)
        ): "“no”: the calibration rests on this very point. "
        "It is made from the sessions that the experiment names in `predict_from`",
        Column("Predicted step", "predicted_s", milliseconds, "ms"): "by the cluster model, written down before "
        "anything here was measured. Adaptive methods and links without a limit are not predicted",
        Column("Measured step", "measured_s", milliseconds, "ms"): "the fastest counted step, as in the calibration: "
        "disturbances only make a step longer",
        Column("Median step", with_band("step_s", milliseconds), unit="ms"): "of the counted steps (20–80 % quantiles)",
        Column("Error", "error_percent", percent): "how much longer the predicted step is than the measured one",
        Column("Floor", "floor_error_percent", percent): "the same error for the step without any exchange of "
        "gradients, for methods whose stages send each other what that step's do. Without pipeline stages the floor "
        "uses no network, so its error is the machine's drift since it was calibrated (above zero: the machine is "
        "faster)",
        Column("Predicted saving", "predicted_saving_percent", percent): "of the step, against the baseline's at the "
        "same rate",
        Column("Measured saving", "saving_percent", percent): "the same of the fastest steps",
        Column("Off by", "saving_error_points", cell, "points"): "predicted less measured saving",
        **RIGHT_SIGN,
    },
    paragraph,
)
