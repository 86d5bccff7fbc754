"""Quality: validation loss against the baseline, with a verdict, and zero-shot accuracy."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from edgc.analysis import sequential
from edgc.analysis.collect import NOT_RUN
from edgc.analysis.render import cell
from edgc.analysis.study import Line, Study, baseline_of, lines, paired
from edgc.config import Experiment, UntilDecided

TITLE = "Accuracy"

#: Fewer seeds give no usable estimate of their spread.
MIN_SEEDS = 3
TOO_FEW = "too few seeds"
#: The same where seeds are added until verdicts are decided.
OPEN = "open"
DECIDED = frozenset({"worse", "preserved", "better"})
CONFIDENCE = 0.95

CAPTION = {
    "Seeds": "runs that finished",
    "Validation loss": "final, in nats a token: mean ± standard deviation over seeds",
    "Perplexity": "exponential of the validation loss, mean over seeds",
    "Gap to baseline": "loss less the baseline's of the same seed: mean and 95 % confidence interval (Student's t)",
    "Verdict": "“worse”: the whole interval lies above the experiment's margin; “preserved”: below it; “better”: below "
    f"minus the margin; “{TOO_FEW}”: the interval straddles the margin, or rests on fewer than {MIN_SEEDS} pairs",
    "Tasks": "accuracy in percent ± lm-eval's standard error (over examples, which all seeds share), mean over seeds; "
    "n: examples; chance: what guessing gets",
}


def caption(experiment: Experiment) -> dict[str, str]:
    """`CAPTION`, and of seeds that are added until verdicts are decided, by which rule."""
    until = experiment.until_decided
    if until is None:
        return CAPTION
    level = f"{100 * confidence(until):.2f} %"
    return CAPTION | {
        "Gap to baseline": "loss less the baseline's of the same seed: mean and an interval that is valid at any "
        f"number of seeds from {until.first} to {until.most}: Student's t at {level} each, so that with at least "
        f"{100 * (1 - sequential.ERROR):g} % all of them hold the true gap (Pocock 1977; Jennison and Turnbull 1989)",
        "Verdict": "“worse”: the whole interval lies above the experiment's margin; “preserved”: below it; “better”: "
        "below minus the margin; n: pairs of seeds. A method gets seeds until its verdict is “decided”, or “open at "
        f"most”: open at {until.most} seeds, the most. At most {100 * sequential.ERROR:g} % of such verdicts are "
        "false, however often one looks",
    }


def build(study: Study) -> pd.DataFrame:
    """One row per line: seeds, loss (nats) with loss_sd, perplexity, gap with gap_low, gap_high, verdict; tasks.

    Where seeds are added until verdicts are decided: also gap_sd, and `decided`: decided | open | open at most.

    A task has `<task>` (share of right answers), `<task>_stderr`, `<task>_n` (examples) and `<task>_chance` (what
    guessing gets), NaN where it was not run, and `<task>_reason`, why it was not run.
    """
    return pd.DataFrame([_row(line, study) for line in lines(study.frames.runs)])


def _row(line: Line, study: Study) -> dict[str, object]:
    losses = line.done["validation_loss"].dropna()
    baseline = baseline_of(line, study)
    gaps = gaps_to(line, baseline)
    until = study.experiment.until_decided
    gap, low, high = interval(gaps, until)
    row: dict[str, object] = {**line.identity, "seeds": len(losses)}
    row |= {"loss": losses.mean(), "loss_sd": losses.std(), "perplexity": np.exp(losses).mean()}
    row |= {"pairs": len(gaps), "gap": gap, "gap_low": low, "gap_high": high}
    row["verdict"] = judge(line, gaps, study.experiment.judgement.margin_nats, baseline, until)
    if until:
        row |= {"gap_sd": gaps.std(), "decided": _decided(str(row["verdict"]), len(line.runs), until)}
    for task in study.experiment.tasks:
        row |= _task(line, task, study)
    return row


def gaps_to(line: Line, baseline: Line | None) -> pd.Series:
    """Validation loss minus the baseline's of the same seed, in nats."""
    if baseline is None:
        return pd.Series(dtype=float)
    pairs = paired(*(run.set_index("seed")["validation_loss"] for run in (line.done, baseline.done)))
    return pairs["own"] - pairs["reference"]


def _decided(verdict: str, runs: int, until: UntilDecided) -> str | None:
    """Whether a verdict by need is decided; None for what is no such verdict."""
    if verdict == OPEN:
        return "open at most" if runs >= until.most else OPEN
    return "decided" if verdict in DECIDED else None


def confidence(until: UntilDecided | None) -> float:
    """Of a Student t interval; with seeds until decided, of each look's: together they hold with `CONFIDENCE`."""
    return sequential.confidence(until.first, until.most) if until else CONFIDENCE


def interval(gaps: pd.Series, until: UntilDecided | None = None) -> tuple[float, float, float]:
    """Mean and 95 % confidence interval of the mean gap; the interval is NaN below two pairs.

    `until`: seeds are added by this rule, so the interval is one that is valid at any of its looks, and NaN before.
    """
    mean = float(gaps.mean()) if len(gaps) else np.nan
    if len(gaps) < (until.first if until else 2):
        return mean, np.nan, np.nan
    half = float(stats.t.ppf((1 + confidence(until)) / 2, len(gaps) - 1) * gaps.std() / np.sqrt(len(gaps)))
    return mean, mean - half, mean + half


def deviation(half: float, pairs: int) -> float:
    """The standard deviation behind an `interval` of this half width over so many pairs."""
    if pairs < 2:
        return np.nan
    return float(half * np.sqrt(pairs) / stats.t.ppf((1 + CONFIDENCE) / 2, pairs - 1))


def judge(
    line: Line, gaps: pd.Series, margin: float, baseline: Line | None, until: UntilDecided | None = None
) -> str:  # fmt: skip
    """The verdict on a line's quality."""
    ended_badly = line.measured[line.measured["status"] != "done"]
    if line.measured.empty:
        return NOT_RUN
    if len(ended_badly):
        return f"{ended_badly['status'].iloc[0]} ({len(ended_badly)} of {len(line.runs)})"
    if baseline is None:
        return "no baseline"
    if line.method == baseline.method:
        return "baseline"
    return verdict(gaps, margin, until)


def verdict(gaps: pd.Series, margin: float, until: UntilDecided | None = None) -> str:
    """preserved | better | worse | too few seeds: where the confidence interval of the mean gap lies.

    `until`: seeds are added by this rule; instead of too few seeds the verdict is then open.
    """
    undecided = OPEN if until else TOO_FEW
    if len(gaps) < (until.first if until else MIN_SEEDS):
        return undecided
    _, low, high = interval(gaps, until)
    if high < -margin:
        return "better"
    if low > margin:
        return "worse"
    return "preserved" if high <= margin else undecided


def _task(line: Line, task: str, study: Study) -> dict[str, object]:
    results = line.of(study.frames.zero_shot)
    results = results[results["task"] == task]
    reasons = results["reason"].dropna()
    results = results[results["status"] == "done"]
    columns = {"": results["value"], "_stderr": results["stderr"], "_n": results["n"], "_chance": results["chance"]}
    measured: dict[str, object] = {f"{task}{suffix}": values.mean() for suffix, values in columns.items()}
    return measured | {f"{task}_reason": reasons.iloc[0] if len(reasons) else None}


def tasks_of(table: pd.DataFrame) -> list[str]:
    """The task columns of a built table."""
    return [column.removesuffix("_stderr") for column in table.columns if column.endswith("_stderr")]


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read; what was not run says so."""
    shown = pd.DataFrame({"Model": table["model"], "Method": table["title"], "Status": table["status"]})
    shown["Hardware"] = table["device"]
    shown["Seeds"] = table["seeds"]
    shown["Validation loss"] = [_loss(row) for _, row in table.iterrows()]
    shown["Perplexity"] = table["perplexity"].map(cell)
    shown["Gap to baseline"] = [_gap(row) for _, row in table.iterrows()]
    shown["Verdict"] = [_verdict(row) for _, row in table.iterrows()]
    for task in tasks_of(table):
        shown[_heading(table, task)] = [_accuracy(row, task) for _, row in table.iterrows()]
    return shown


def _loss(row: pd.Series) -> str:
    if not row["seeds"]:
        return str(row["status"])
    spread = f" ± {row['loss_sd']:.4f}" if row["seeds"] > 1 else ""
    return f"{row['loss']:.4f}{spread}"


def _gap(row: pd.Series) -> str:
    if row["verdict"] == "baseline" or np.isnan(row["gap"]):
        return "–"
    bounds = f" ({row['gap_low']:+.4f}, {row['gap_high']:+.4f})" if np.isfinite(row["gap_low"]) else ""
    return f"{row['gap']:+.4f}{bounds}".replace("-", "−")


def _verdict(row: pd.Series) -> str:
    """The verdict; with seeds until decided, whether it is, and by how many pairs: `worse (decided, n = 5)`."""
    decided = row.get("decided")
    if decided is None or pd.isna(decided):
        return str(row["verdict"])
    words = f"{row['verdict']} (decided, " if decided == "decided" else f"{decided} ("
    return f"{words}n = {row['pairs']})"


def paragraph(table: pd.DataFrame) -> str:
    """How many verdicts are decided, and which are not; nothing where seeds are given."""
    judged = table[table["decided"].notna()] if "decided" in table else table[:0]
    if judged.empty:
        return ""
    left = judged[judged["decided"] != "decided"]
    told = [f"{row['title']} ({row['decided']}, n = {row['pairs']})" for _, row in left.iterrows()]
    share = f"{len(judged) - len(left)} of {len(judged)} verdicts are decided"
    return f"{share}; left: {', '.join(told)}." if told else f"{share}."


def _heading(table: pd.DataFrame, task: str) -> str:
    chance = table[f"{task}_chance"].mean()
    return f"{task} (%)" if np.isnan(chance) else f"{task} (%; chance {100 * chance:.1f})"


def _accuracy(row: pd.Series, task: str) -> str:
    if np.isnan(row[task]):
        return NOT_RUN
    error = f" ± {100 * row[f'{task}_stderr']:.1f}" if np.isfinite(row[f"{task}_stderr"]) else ""
    return f"{100 * row[task]:.1f}{error} (n = {row[f'{task}_n']:.0f})"
