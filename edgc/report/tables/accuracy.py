"""Quality: validation loss against the baseline, with a verdict, and zero-shot accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from edgc.report import verdicts
from edgc.report.collect import NOT_RUN
from edgc.report.render import NOTHING, cell, gap, with_deviation, with_range
from edgc.report.study import Line, Study, baseline_of, by_line, pooled
from edgc.report.table import IDENTITY, Column, Table
from edgc.suite.config import Experiment, UntilDecided

BEATEN = "beaten"

SPARED = (
    ". “open, beaten by …”: it gets no more seeds, for the named method sends fewer bytes and has a lower loss (the "
    "same kind of interval, of their difference, lies above 0)"
)


def build(study: Study) -> pd.DataFrame:
    """One row per line: seeds, loss (nats) with loss_sd, perplexity, gap with gap_low, gap_high, verdict; tasks.

    Where seeds are added until verdicts are decided: also gap_sd, `decided`: decided | beaten | open | open at most,
    and `beaten_by`, the title of the method that sends fewer bytes and has a clearly lower loss.

    A task has `<task>` (share of right answers), `<task>_stderr`, `<task>_n` (examples) and `<task>_chance` (what
    guessing gets), NaN where it was not run, and `<task>_reason`, why it was not run. Models of CPU are pooled.
    """
    return _build(pooled(study))


@by_line
def _build(line: Line, study: Study) -> dict[str, object]:
    losses = line.done["validation_loss"].dropna()
    baseline = baseline_of(line, study)
    gaps = verdicts.gaps_to(line, baseline)
    until = study.experiment.until_decided
    row: dict[str, object] = {"seeds": len(losses)}
    row |= {"loss": losses.mean(), "loss_sd": losses.std(), "perplexity": np.exp(losses).mean()}
    row |= {"pairs": len(gaps), **verdicts.interval_of("gap", gaps, until)}
    row["verdict"] = verdicts.judge(line, gaps, study.experiment.judgement.margin_nats, baseline, until)
    if until:
        row |= {"gap_sd": gaps.std(), **_decided(str(row["verdict"]), line, study, until)}
    for task in study.experiment.tasks:
        row |= _task(line, task, study)
    return row


def _decided(verdict: str, line: Line, study: Study, until: UntilDecided) -> dict[str, str | None]:
    """Whether a verdict by need is decided, and by what an open one is beaten; None for what is no such verdict."""
    if verdict != verdicts.OPEN:
        return {"decided": "decided" if verdict in verdicts.DECIDED else None, "beaten_by": None}
    if len(line.runs) >= until.most:
        return {"decided": "open at most", "beaten_by": None}
    better = verdicts.beaten_by(line, study.frames, until)
    return {"decided": BEATEN if better else verdicts.OPEN, "beaten_by": better.title if better else None}


def _task(line: Line, task: str, study: Study) -> dict[str, object]:
    results = line.of(study.frames.zero_shot)
    results = results[results["task"] == task]
    reasons = results["reason"].dropna()
    results = results[results["status"] == "done"]
    columns = {"": results["value"], "_stderr": results["stderr"], "_n": results["n"], "_chance": results["chance"]}
    measured: dict[str, object] = {f"{task}{suffix}": values.mean() for suffix, values in columns.items()}
    return measured | {f"{task}_reason": reasons.iloc[0] if len(reasons) else None}


def verdict_in_words(row: pd.Series) -> str:
    """The verdict; with seeds until decided, whether it is, and by how many pairs: `worse (decided, n = 5)`.

    Or by what it is beaten: `open, beaten by PowerSGD (n = 3)`.
    """
    decided = row.get("decided")
    if decided is None or pd.isna(decided):
        return str(row["verdict"])
    words = f"{row['verdict']} (decided, " if decided == "decided" else f"{decided} ("
    if decided == BEATEN:
        words = f"open, beaten by {row['beaten_by']} ("
    return f"{words}n = {row['pairs']})"


def paragraph(table: pd.DataFrame) -> str:
    """How many verdicts are decided, and which are not; nothing where seeds are given."""
    judged = table[table["decided"].notna()] if "decided" in table else table[:0]
    if judged.empty:
        return ""
    beaten = judged["decided"] == BEATEN
    left = judged[(judged["decided"] != "decided") & ~beaten]
    told = [f"{row['title']} ({row['decided']}, n = {row['pairs']})" for _, row in left.iterrows()]
    share = f"{(judged['decided'] == 'decided').sum()} of {len(judged)} verdicts are decided"
    if beaten.any():
        share += f", {beaten.sum()} more left open, as a method that sends fewer bytes is better"
    return f"{share}; left: {', '.join(told)}." if told else f"{share}."


def gap_in_words(row: pd.Series) -> str:
    """A row's gap (nats) with its interval; a dash for the baseline."""
    return NOTHING if row["verdict"] == "baseline" else interval(row["gap"], row["gap_low"], row["gap_high"])


def interval(mean: float, low: float, high: float) -> str:
    """A difference of losses (nats) with its interval: `+0.0123 (+0.0100, +0.0146)`."""
    return with_range(mean, low, high, gap, ", ")


def _tasks(table: pd.DataFrame) -> Iterator[Column]:
    for task in (column.removesuffix("_stderr") for column in map(str, table) if column.endswith("_stderr")):
        chance = table[f"{task}_chance"].mean()
        unit = "%" if np.isnan(chance) else f"%; chance {100 * chance:.1f}"
        yield Column(task, partial(_accuracy, task), unit=unit)


def _accuracy(task: str, row: pd.Series) -> str:
    if np.isnan(row[task]):
        return NOT_RUN
    error = f" ± {100 * row[f'{task}_stderr']:.1f}" if np.isfinite(row[f"{task}_stderr"]) else ""
    return f"{100 * row[task]:.1f}{error} (n = {row[f'{task}_n']:.0f})"


def _gap_caption(experiment: Experiment | None) -> str:
    until = experiment.until_decided if experiment else None
    if until is None:
        return "loss less the baseline's of the same seed: mean and 95 % confidence interval (Student's t)"
    level = f"{100 * verdicts.confidence(until):.2f} %"
    return (
        "loss less the baseline's of the same seed: mean and an interval that is valid at any "
        f"number of seeds from {until.first} to {until.most}: Student's t at {level} each, so that with at least "
        f"{100 * (1 - verdicts.ERROR):g} % all of them hold the true gap (Pocock 1977; Jennison and Turnbull 1989)"
    )


def _verdict_caption(experiment: Experiment | None) -> str:
    until = experiment.until_decided if experiment else None
    where = (
        "“worse”: the whole interval lies above the experiment's margin; “preserved”: below it; “better”: below "
        "minus the margin; "
    )
    if until is None:
        return where + (
            f"“{verdicts.TOO_FEW}”: the interval straddles the margin, or rests on fewer than "
            f"{verdicts.MIN_SEEDS} pairs"
        )
    spared = SPARED if until.spare_beaten else ""
    return where + (
        f"n: pairs of seeds. A method gets seeds until its verdict is “decided”, or “open at most”: open at "
        f"{until.most} seeds, the most. At most {100 * verdicts.ERROR:g} % of such verdicts are false, however "
        f"often one looks{spared}"
    )


ACCURACY = Table(
    "Accuracy",
    str(__doc__),
    build,
    {
        **IDENTITY,
        Column("Seeds", "seeds"): "runs that finished, on any model of CPU: it changes how sums round, not what is "
        "computed",
        Column(
            "Validation loss", lambda row: with_deviation(row, "loss") if row["seeds"] else row["status"]
        ): "final, in nats a token: mean ± standard deviation over seeds",
        Column("Perplexity", "perplexity", cell): "exponential of the validation loss, mean over seeds",
        Column("Gap to baseline", gap_in_words): _gap_caption,
        Column("Verdict", verdict_in_words): _verdict_caption,
        _tasks: "",
        "Tasks": "accuracy in percent ± lm-eval's standard error (over examples, which all seeds share), mean over "
        "seeds; n: examples; chance: what guessing gets",
    },
    paragraph,
)
