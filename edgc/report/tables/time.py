"""Where a step's time goes, how long training takes, and how long until the baseline's loss is reached."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.core.comm.telemetry import REGIONS
from edgc.report.frames import STEP_SECONDS
from edgc.report.render import cell, milliseconds, percent, with_band
from edgc.report.study import Line, Study, banded, baseline_of, by_line, central, paired_runs, reductions, steady
from edgc.report.table import IDENTITY, Column, Table


@by_line
def build(line: Line, study: Study) -> dict[str, object]:
    """One row per line, in seconds: step_s with _p20, _p80, its parts, training_s, to_target_s; tokens_per_s."""
    steps = steady(line.of(study.frames.steps))
    parts = central(steps)[list(STEP_SECONDS)].mean()
    baseline = baseline_of(line, study)
    times = time_to_target(line, baseline, study)
    row: dict[str, object] = {"runs": len(line.measured), "steps": len(steps)}
    row |= banded("step_s", steps["t_step"])
    row |= {f"{part.removeprefix('t_')}_s": parts[part] for part in STEP_SECONDS}
    row["tokens_per_s"] = _tokens_per_step(line) / steps["t_step"].median()
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
    saved = reductions(paired_runs(line, baseline, "training_seconds"))
    return float(np.mean(saved)) if saved else np.nan


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
    evals = line.done_of(study.frames.evals)
    return pd.Series({seed: _first(evals[evals["seed"] == seed], targets[seed], spent) for seed in seeds}, dtype=float)


def _first(evals: pd.DataFrame, target: float, spent: str) -> float:
    met = evals[evals["loss"] <= target]
    return float(met[spent].min()) if len(met) else np.inf


TABLE = Table(
    "Training time",
    build,
    {
        **IDENTITY,
        Column("Step", with_band("step_s", milliseconds), unit="ms"): "median (20–80 % quantiles) over steps and seeds",
        "Parts of a step": "a column each: means over the steps within that band, so that they add up",
        **{Column(region, f"{region}_s", milliseconds, "ms"): "" for region in REGIONS},
        Column("Tokens/s", "tokens_per_s", cell): "a global batch's tokens divided by the median step",
        Column("Training", "training_s", cell, "s"): "seconds of all steps of a finished run, mean over seeds. "
        "Start-up, evaluation and checkpoints are not in it",
        Column("Saving", "saving_percent", percent): "of training time, against the baseline of the same seed on the "
        "same hardware",
        Column("To target", "to_target_s", cell, "s"): "seconds until the validation loss is at most the baseline's "
        "final one (of the same seed) plus the experiment's margin: median over seeds; inf: not reached, or the run "
        "did not finish",
        Column("Reached", "reached"): "seeds that reached the target, of those that have one",
        Column("Start-up", "startup_s", cell, "s"): "seconds of a finished run, mean over seeds",
        Column("Evaluation", "evaluation_s", cell, "s"): "the same",
        Column("Checkpoints", "checkpoint_s", cell, "s"): "the same",
    },
)
