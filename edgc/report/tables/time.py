"""Where a step's time goes, how long training takes, and how long until the baseline's loss is reached."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.report.frames import STEP_SECONDS
from edgc.report.render import cell, percent, with_band
from edgc.report.study import (
    Line,
    Study,
    band,
    baseline_of,
    central,
    lines,
    paired,
    reduction_percent,
    steady,
)

TITLE = "Training time"

CAPTION = {
    "Step": "median (20–80 % quantiles) over steps and seeds",
    "Parts of a step": "a column each: means over the steps within that band, so that they add up",
    "Tokens/s": "a global batch's tokens divided by the median step",
    "Training": "seconds of all steps of a finished run, mean over seeds. Start-up, evaluation and checkpoints are not "
    "in it",
    "Saving": "of training time, against the baseline of the same seed on the same hardware",
    "To target": "seconds until the validation loss is at most the baseline's final one (of the same seed) plus the "
    "experiment's margin: median over seeds; inf: not reached, or the run did not finish",
    "Reached": "seeds that reached the target, of those that have one",
    "Start-up": "seconds of a finished run, mean over seeds",
    "Evaluation": "the same",
    "Checkpoints": "the same",
}


def build(study: Study) -> pd.DataFrame:
    """One row per line, in seconds: step_s with _p20, _p80, its parts, training_s, to_target_s; tokens_per_s."""
    return pd.DataFrame([_row(line, study) for line in lines(study.frames.runs)])


def _row(line: Line, study: Study) -> dict[str, object]:
    steps = steady(line.of(study.frames.steps))
    median, low, high = band(steps["t_step"])
    parts = central(steps)[list(STEP_SECONDS)].mean()
    baseline = baseline_of(line, study)
    times = time_to_target(line, baseline, study)
    row: dict[str, object] = {**line.identity, "runs": len(line.measured), "steps": len(steps)}
    row |= {"step_s": median, "step_s_p20": low, "step_s_p80": high}
    row |= {f"{part.removeprefix('t_')}_s": parts[part] for part in STEP_SECONDS}
    row["tokens_per_s"] = _tokens_per_step(line) / median
    row["training_s"] = line.done["training_seconds"].mean()
    row["saving_percent"] = saving_percent(line, baseline)
    row["to_target_s"] = times.median() if len(times) else np.nan
    row["reached"] = f"{int(np.isfinite(times).sum())}/{len(times)}" if len(times) else None
    for aside in ("startup", "evaluation", "checkpoint"):
        row[f"{aside}_s"] = line.done[f"{aside}_seconds"].mean()
    return row


def _tokens_per_step(line: Line) -> float:
    """Tokens of a global batch."""
    run = line.runs.iloc[0]
    return float(run["spec.training.global_batch"] * run["spec.model.seq_length"])


def saving_percent(line: Line, baseline: Line | None) -> float:
    """Training seconds saved against the baseline of the same seed, mean over seeds, in percent."""
    if baseline is None:
        return np.nan
    seconds = [run.set_index("seed")["training_seconds"] for run in (line.done, baseline.done)]
    pairs = paired(*seconds)
    return (
        float(np.mean([reduction_percent(o, r) for o, r in zip(pairs["own"], pairs["reference"], strict=True)]))
        if len(pairs)
        else np.nan
    )


def time_to_target(line: Line, baseline: Line | None, study: Study, spent: str = "seconds") -> pd.Series:
    """By seed: training seconds at the first evaluation that meets the target; inf where it is missed.

    `spent`: another column of the frame `evals` in the place of seconds.
    The target is the baseline's final validation loss at this seed plus the experiment's margin. Seeds without
    a finished baseline have no target; a run that did not finish misses it, however good it once was.
    """
    if baseline is None:
        return pd.Series(dtype=float)
    targets = baseline.done.set_index("seed")["validation_loss"] + study.experiment.judgement.margin_nats
    seeds = [seed for seed in line.measured["seed"] if seed in targets.index]
    evals = study.frames.evals[study.frames.evals["run_id"].isin(line.done["run_id"])]
    return pd.Series({seed: _first(evals[evals["seed"] == seed], targets[seed], spent) for seed in seeds}, dtype=float)


def _first(evals: pd.DataFrame, target: float, spent: str) -> float:
    met = evals[evals["loss"] <= target]
    return float(met[spent].min()) if len(met) else np.inf


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read: steps in milliseconds, runs in seconds."""
    shown = pd.DataFrame({"Model": table["model"], "Method": table["title"], "Status": table["status"]})
    shown["Hardware"] = table["device"]
    shown["Step (ms)"] = [with_band(row, "step_s", 1e3) for _, row in table.iterrows()]
    for part in STEP_SECONDS:
        name = part.removeprefix("t_")
        shown[f"{name} (ms)"] = (table[f"{name}_s"] * 1e3).map(cell)
    shown["Tokens/s"] = table["tokens_per_s"].map(cell)
    shown["Training (s)"] = table["training_s"].map(cell)
    shown["Saving"] = table["saving_percent"].map(percent)
    shown["To target (s)"] = table["to_target_s"].map(cell)
    shown["Reached"] = table["reached"]
    shown["Start-up (s)"] = table["startup_s"].map(cell)
    shown["Evaluation (s)"] = table["evaluation_s"].map(cell)
    shown["Checkpoints (s)"] = table["checkpoint_s"].map(cell)
    return shown
