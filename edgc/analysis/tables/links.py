"""Does compression pay on links of this rate? Step times, exposed communication and bytes of a timing session."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.analysis import timed_steps as session
from edgc.analysis.collect import NOT_RUN
from edgc.analysis.frames import OTHER_BYTES
from edgc.analysis.links_in_words import FASTEST, LOSES, NOISE, PAYS, paragraph
from edgc.analysis.render import NOTHING, cell, percent, with_band
from edgc.analysis.study import Line, Study, band
from edgc.analysis.tables import accuracy
from edgc.analysis.timed_steps import Session

__all__ = ["CAPTION", "TITLE", "build", "paragraph", "present"]

TITLE = "Methods on links of several rates"

#: Two standard errors of the median of n normal numbers are 1.49 times their 20–80 % width, divided by √n.
TWO_ERRORS = 1.49

CAPTION = (
    "All methods took turns in one session; only counted steps, without warm-up and settling. Step: lowest, and "
    "median with the 20 and 80 % quantiles in brackets. Exposed: what the exchange adds to a step, i.e. median step "
    "less that of the method without any exchange (the floor) in the same round, mean over rounds; from minima: "
    "lowest step less the floor's lowest. Reductions: percent less than the reference, of a round's median step time "
    "or exposed communication, both as means over the same rounds; the floor's are what any exchange could save at "
    "most, and nothing is told where the reference exposes nothing. References: the experiment's baseline, and the "
    "fastest dense method at that rate (lowest median step), which is what one has without compression. ±: two "
    "standard errors of a reduction over rounds, in points (of two rounds: their difference). Noise: the larger of "
    "that of the step saved against the fastest dense method and two standard errors of the difference of both medians "
    f"({TWO_ERRORS:g} × "
    "20–80 % width / √steps each, added in squares). Verdict: pays where that reduction is above the noise, does not "
    "pay where it is below minus the noise, otherwise within noise; too few rounds: one. Not limited: "
    "links without a limit, the negative control. MB a step (10⁶ bytes), mean, all ranks. Payload: gradient bytes "
    "handed to collectives; wire: what ring algorithms send for them; ledger: wire and, as sent, all other charged "
    "traffic (agreement, observation, tied embedding, pipeline); interface: what packets carried that the "
    "ranks' network interfaces sent, without their headers. What the ledger does not count of it: what gloo and the "
    "framework send themselves (the floor's row shows how much). Others' load: largest share of the machine's cores "
    "that others used during a cell; disturbed where it is above the experiment's limit. Cores' time: for the same "
    "work, right before a cell, of the slowest core in the slowest cell, in units of the session's best. Link: what a "
    "rank sent in a plain dense all-reduce, in Mbit/s. Loss gap: to the baseline, mean ± standard deviation over pairs"
    " of seeds, as published by the experiment that `judgement.gaps_from` names (of <method>_overlap that of <method>,"
    " as overlap changes no number); – where it has none; within the margin where its "
    f"whole 95 % confidence interval is, of {accuracy.MIN_SEEDS} pairs at least. Break-even: where the largest "
    "reduction of any method falls to zero, linear in the logarithm of the rate; a reduction within noise counts as "
    "zero."
)


def build(study: Study) -> pd.DataFrame:
    """A row a model, rate and method, in the experiment's order: seconds, percent, MB (see `CAPTION`).

    `<what>_<reference>_percent`: reduction of step or exposed against `baseline` or `dense` (the fastest dense), and
    its `_error` in points; noise_points belong to step_dense_percent. `preserved`: whether the loss gap's 95 %
    confidence interval lies within the experiment's margin.
    """
    own = Session(study)
    return pd.DataFrame(
        [
            _row(line, rate, own) | _load(own.steps(line, rate), study) | gap_of(line, study)
            for model in own.models
            for rate in own.rates
            for line in own.lines
            if line.model == model
        ]
    )


def _row(line: Line, rate: str, among: Session) -> dict[str, object]:
    steps = among.steps(line, rate)
    floor_steps = among.steps(among.floor(line), rate)
    baseline, dense = among.baseline(line), among.fastest_dense(line, rate)
    own = session.exposed(steps, floor_steps)
    row: dict[str, object] = {**line.identity, "role": session.role(line), "rate": rate}
    row |= {"nominal_mbit": session.megabits(rate), "achieved_mbit": session.achieved(line, rate)}
    row |= {"steps": len(steps), "rounds": steps["round"].nunique(), "step_s_min": steps["t_step"].min()}
    row |= dict(zip(("step_s", "step_s_p20", "step_s_p80"), band(steps["t_step"]), strict=True))
    row |= {"exposed_s": own.mean(), "exposed_s_min": row["step_s_min"] - floor_steps["t_step"].min()}
    saved: dict[str, session.Reduction] = {}
    for name, other in (("baseline", baseline), ("dense", dense)):
        theirs = among.steps(other, rate)
        row[name] = other.title if other else None
        saved[f"exposed_{name}"] = session.reduction(own, session.exposed(theirs, floor_steps))
        saved[f"step_{name}"] = session.reduction(session.by_round(steps), session.by_round(theirs))
    for name, found in saved.items():
        row |= {f"{name}_percent": found.percent, f"{name}_error": found.error}
    within = _error_points(steps, among.steps(dense, rate))
    row["noise_points"] = float(np.max([saved["step_dense"].error, within]))  # NaN if either is
    row["verdict"] = judge(line, dense, row)
    return row | _bytes(steps)


def _error_points(own: pd.DataFrame, reference: pd.DataFrame) -> float:
    """Two standard errors of the difference of two medians, in percent of the reference's median."""
    widths = []
    for steps in (own, reference):
        _, low, high = band(steps["t_step"])
        widths.append(TWO_ERRORS * (high - low) / np.sqrt(max(1, len(steps))))
    return 100 * float(np.hypot(*widths)) / reference["t_step"].median()


def judge(line: Line, dense: Line | None, row: dict) -> str:
    """The verdict on a method at a rate, against the fastest dense method; or why there is none."""
    if line.measured.empty:
        return NOT_RUN
    if line.status != "done":
        return line.status
    if not row["steps"]:
        return "no step counted"
    if row["role"] == session.FLOOR:
        return "floor"
    if dense is None:
        return "no dense method"
    if line.method == dense.method:
        return FASTEST
    if np.isnan(row["noise_points"]):
        return "too few rounds"
    if row["step_dense_percent"] > row["noise_points"]:
        return PAYS
    return LOSES if row["step_dense_percent"] < -row["noise_points"] else NOISE


def _bytes(steps: pd.DataFrame) -> dict[str, float]:
    """MB a step; a ledger that nothing was charged to (no exchange, a hook of PyTorch's) is held against nothing."""
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


def _load(steps: pd.DataFrame, study: Study) -> dict[str, object]:
    largest = steps["foreign_load"].max()
    timing = study.experiment.timing
    slower = steps["slower"].astype(float).max()
    return {"foreign_load": largest, "disturbed": bool(timing and largest > timing.foreign_load), "slower": slower}


def gap_of(line: Line, study: Study) -> dict[str, object]:
    """The loss gap that another experiment published: gap, gap_sd (nats), gap_n (pairs of seeds), preserved."""
    unknown = {"gap": np.nan, "gap_sd": np.nan, "gap_n": 0, "preserved": False}
    if study.gaps is None:
        return unknown
    same = (line.method, line.method.removesuffix("_overlap"))  # overlap changes when bytes are sent, and no number
    table = study.gaps[(study.gaps["model"] == line.model) & study.gaps["method"].isin(same)]
    found = table[table["pairs"] > 0]
    if found.empty:
        return unknown
    row = found.iloc[0]
    margin, pairs = study.experiment.judgement.margin_nats, int(row["pairs"])
    preserved = row["status"] == "done" and pairs >= accuracy.MIN_SEEDS and row["gap_high"] <= margin
    spread = accuracy.deviation(row["gap_high"] - row["gap"], pairs)
    return {"gap": row["gap"], "gap_sd": spread, "gap_n": pairs, "preserved": bool(preserved)}


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read: milliseconds, and rounded."""
    rows = [row for _, row in table.iterrows()]
    shown = pd.DataFrame({"Model": table["model"], "Rate": table["rate"].map(session.spoken)})
    shown["Method"], shown["Status"], shown["Hardware"] = table["title"], table["status"], table["device"]
    shown["Verdict"] = table["verdict"]
    shown["Steps"] = table["steps"]
    shown["Lowest step (ms)"] = (table["step_s_min"] * 1e3).map(cell)
    shown["Step (ms)"] = [with_band(row, "step_s", 1e3) for row in rows]
    shown["Exposed (ms)"] = (table["exposed_s"] * 1e3).map(cell)
    shown["Exposed from minima (ms)"] = (table["exposed_s_min"] * 1e3).map(cell)
    shown["Baseline"] = table["baseline"]
    shown["Step saved against it"] = [_reduction(row, "step_baseline") for row in rows]
    shown["Exposed saved against it"] = [_reduction(row, "exposed_baseline") for row in rows]
    shown["Fastest dense"] = table["dense"]
    shown["Step saved against that"] = [_reduction(row, "step_dense") for row in rows]
    shown["Exposed saved against that"] = [_reduction(row, "exposed_dense") for row in rows]
    shown["Noise (points)"] = table["noise_points"].map(cell)
    for name in ("payload", "wire", "ledger", "interface"):
        shown[f"{name.title()} (MB/step)"] = table[f"{name}_mb"].map(cell)
    shown["Ledger / interface"] = table["ledger_share"].map(cell)
    shown["Others' load"] = [_others(row) for row in rows]
    shown["Cores' time (× best)"] = table["slower"].map(cell)
    shown["Link (Mbit/s)"] = table["achieved_mbit"].map(cell)
    shown["Loss gap (nats)"] = [_gap(row) for row in rows]
    return shown


def _reduction(row: pd.Series, name: str) -> str:
    error = row[f"{name}_error"]
    return percent(row[f"{name}_percent"]) + (f" ± {error:.1f}" if pd.notna(error) else "")


def _others(row: pd.Series) -> str:
    return percent(100 * row["foreign_load"]) + (", disturbed" if row["disturbed"] else "")


def _gap(row: pd.Series) -> str:
    if pd.isna(row["gap"]):
        return NOTHING
    spread = f" ± {row['gap_sd']:.4f}" if pd.notna(row["gap_sd"]) else ""
    return f"{row['gap']:+.4f}{spread} (n = {row['gap_n']})".replace("-", "−")
