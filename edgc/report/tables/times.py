"""Where a step's time goes, what communication takes of it, and how long it is until a loss is reached."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from edgc.core.comm.telemetry import REGIONS
from edgc.report.frames import OTHER_BYTES, STEP_SECONDS
from edgc.report.render import NOTHING, cell, factor, groups, megabytes, milliseconds, percent, with_band, with_range
from edgc.report.study import (
    Line,
    Study,
    banded,
    baseline_of,
    by_line,
    central,
    lowest,
    paired,
    paired_runs,
    reduction_percent,
    reductions,
    steady,
)
from edgc.report.table import IDENTITY, Column, Table
from edgc.report.timed_steps import DENSE, role

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
def _latencies(line: Line, study: Study) -> dict[str, object]:
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


def _definition(definition: str, text: str, name: str = "") -> dict[Column, str]:
    """A definition's seconds, what they are, and their reduction."""
    heading = DEFINITIONS[definition][0]
    seconds = with_band(f"{definition}_s", milliseconds)
    return {
        (Column(name, seconds) if name else Column(heading, seconds, unit="ms")): text,
        Column(f"reduction: {heading}", f"{definition}_reduction_percent", percent): "",
    }


LATENCY = Table(
    "Communication latency",
    "Communication latency and traffic of a step, under every definition of latency side by side.",
    _latencies,
    {
        "All times": "of a step on the first pipeline stage: median (20–80 % quantiles) over steps and seeds",
        "All bytes": "sum over ranks, mean over all steps; MB = 10⁶ bytes",
        **IDENTITY,
        Column("Steps", "steps"): "that count for times: without each run's first ones",
        Column("Compressed", "compressed_percent", percent): "share of those steps that handed over less than fp32 "
        "gradients",
        **_definition(
            "wire",
            "the gradients' collectives from launch to completion, summed; it includes waiting for the slower "
            "data-parallel peer",
            "wire (ms)",
        ),
        **_definition("exchange", "the same with the method's own computing"),
        **_definition("exposed", "what of the exchange blocks the step"),
        **_definition(
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


@by_line
def _training(line: Line, study: Study) -> dict[str, object]:
    """One row per line, in seconds: step_s with _p20, _p80, its parts, training_s, to_target_s; tokens_per_s."""
    steps = steady(line.of(study.frames.steps))
    parts = central(steps)[list(STEP_SECONDS)].mean()
    baseline = baseline_of(line, study)
    times = time_to_target(line, baseline, study)
    row: dict[str, object] = {"runs": len(line.measured), "steps": len(steps)}
    row |= banded("step_s", steps["t_step"])
    row |= {f"{part.removeprefix('t_')}_s": parts[part] for part in STEP_SECONDS}
    run = line.runs.iloc[0]
    batch = run["spec.training.global_batch"] * run["spec.model.seq_length"]  # tokens
    row["tokens_per_s"] = float(batch) / steps["t_step"].median()
    row["training_s"] = line.done["training_seconds"].mean()
    row["saving_percent"] = saving_percent(line, baseline)
    row["to_target_s"] = times.median() if len(times) else np.nan
    row["reached"] = f"{int(np.isfinite(times).sum())}/{len(times)}" if len(times) else None
    for aside in ("startup", "evaluation", "checkpoint"):
        row[f"{aside}_s"] = line.done[f"{aside}_seconds"].mean()
    return row


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
    met = evals[evals["loss"] <= evals["seed"].map(targets)]
    return met.groupby("seed")[spent].min().astype(float).reindex(seeds, fill_value=np.inf)


TIME = Table(
    "Training time",
    "Where a step's time goes, how long training takes, and how long until the baseline's loss is reached.",
    _training,
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


SPENT = ("seconds", "step", "wire_bytes")  #: columns of the frame `evals`


@by_line
def _until(line: Line, study: Study) -> dict[str, object]:
    """One row per line: the median of each of `SPENT` with _low, _high, and its ratios `_per_baseline`, `_per_dense`.

    `dense`: title of the fastest dense method.
    """
    baseline = baseline_of(line, study)
    dense = fastest_dense(line, study)
    row: dict[str, object] = {}
    for spent in SPENT:
        own = time_to_target(line, baseline, study, spent)
        row |= {spent: own.median(), f"{spent}_low": own.min(), f"{spent}_high": own.max()}
        for name, other in (("baseline", baseline), ("dense", dense)):
            theirs = time_to_target(other, baseline, study, spent) if other else pd.Series(dtype=float)
            row[f"{spent}_per_{name}"] = ratio(own, theirs)
        row |= {"seeds": len(own), "reached": int(np.isfinite(own).sum())}
    return row | {"baseline": baseline.title if baseline else None, "dense": dense.title if dense else None}


def fastest_dense(line: Line, study: Study) -> Line | None:
    """Of the dense methods on the same model and hardware, the one with the lowest median seconds to the target."""
    baseline = baseline_of(line, study)
    dense = (other for other in line.beside(study.frames.runs) if role(other) == DENSE)
    return lowest(dense, lambda other: time_to_target(other, baseline, study).median())


def ratio(own: pd.Series, reference: pd.Series) -> float:
    """Median over seeds of own / reference; only seeds whose reference reached the target."""
    pairs = paired(own, reference[np.isfinite(reference)])
    return float((pairs["own"] / pairs["reference"]).median())


def _who_is_first(table: pd.DataFrame) -> str:
    """Which method is there first, and which miss the target."""
    tried = table[table["seeds"] > 0]
    if tried.empty:
        return "No method has a target: the baseline did not finish."
    return "\n".join(beginning + sentence for beginning, rows in groups(tried) for sentence in _sentences(rows))


def _sentences(rows: pd.DataFrame) -> list[str]:
    sentences = []
    reached = rows[np.isfinite(rows["seconds"])]
    if len(reached):
        row = reached.sort_values("seconds").iloc[0]
        against = [f"{_times(row['seconds_per_baseline'])} the time of {row['baseline']}"]
        if pd.notna(row["seconds_per_dense"]) and row["dense"] not in (row["baseline"], row["title"]):
            against.append(f"{_times(row['seconds_per_dense'])} that of {row['dense']}, the fastest dense method")
        sentences.append(
            f"{row['title']} is first, after {cell(row['seconds'])} s of training: {' and '.join(against)} "
            f"({row['reached']} of {row['seeds']} seeds)."
        )
        row = reached.sort_values("wire_bytes").iloc[0]
        sentences.append(
            f"{row['title']} sends least until then: {megabytes(row['wire_bytes'])} MB, "
            f"{_times(row['wire_bytes_per_baseline'])} those of {row['baseline']}."
        )
    missed = rows[rows["reached"] < rows["seeds"]]
    if len(missed):
        told = [f"{row['title']} ({row['seeds'] - row['reached']} of {row['seeds']})" for _, row in missed.iterrows()]
        sentences.append(f"Seeds that missed the target: {', '.join(told)}.")
    else:
        sentences.append("Every method reached the target with every seed.")
    return sentences


def _times(value: float) -> str:
    return NOTHING if pd.isna(value) else f"{value:.2f} times"


def _spent(spent: str, name: str, text: str, form: Callable[[float], str] = cell, unit: str = "") -> dict[Column, str]:
    """What was spent, what that is, and its ratios to others'."""

    def values(row: pd.Series) -> str:
        low = row[f"{spent}_low"] if row["seeds"] > 1 else np.nan
        return with_range(row[spent], low, row[f"{spent}_high"], form)

    column = Column(name, values, unit=unit)
    return {
        column: text,
        Column(f"{column.heading} / baseline", f"{spent}_per_baseline", factor): "",
        Column(f"{column.heading} / fastest dense", f"{spent}_per_dense", factor): "",
    }


TIME_TO_LOSS = Table(
    "What it takes to reach the baseline's loss",
    "What it takes to reach the baseline's loss: seconds, steps and bytes, against the baseline and the fastest dense.",
    _until,
    {
        "Target": "the first evaluation whose validation loss is at most the baseline's final one (of the same seed) "
        "plus the experiment's margin. Nothing is known finer than the experiment's interval of evaluations",
        **IDENTITY,
        Column(
            "Reached", lambda row: f"{row['reached']}/{row['seeds']}" if row["seeds"] else NOTHING
        ): "seeds that reached it, of those whose baseline finished",
        Column("Fastest dense", "dense"): "the dense method with the lowest median seconds",
        **_spent(
            "seconds",
            "Seconds",
            "of training, without start-up, evaluation and checkpoints: median over seeds (lowest–highest). Runs "
            "follow one another, so seconds depend on what else the machine did; steps and bytes do not",
        ),
        **_spent("step", "Steps", "the same of steps"),
        **_spent(
            "wire_bytes", "Wire", "the same of gradient bytes that all ranks sent; MB = 10⁶ bytes", megabytes, "MB"
        ),
        "inf": "the target was missed, or the run did not finish",
        "… / baseline": "ratio to the baseline's of the same seed: median over the seeds whose baseline reached the "
        "target",
        "… / fastest dense": "the same to the fastest dense method's",
    },
    _who_is_first,
)
