"""What bounded an adaptive method's ranks, and how often its own rule decided."""

from __future__ import annotations

import pandas as pd

from edgc.report.render import NOTHING, cell, percent
from edgc.report.study import Line, Study, lines

TITLE = "What bounded the ranks"

#: What `clamp` says in decisions.jsonl, as printed; `free`: nothing, the rule's own rank stood.
CLAMPS = {
    "warmup": "warm-up",
    "r_min": "r_min",
    "r_max": "r_max",
    "step": "step limit",
    "dense": "dense by alignment",
    "never_pays": "never pays",
    "free": "free",
}
LAST = 5  #: windows at the end of a run whose error is shown

CAPTION = {
    "All shares": "of windows, over matrices and seeds, by what decided the rank",
    "Stage": "of the pipeline",
    "Windows": "of a run",
    "warm-up": "no rank yet: uncompressed",
    "r_min": "the lowest rank",
    "r_max": "the highest rank",
    "step limit": "the largest change from window to window",
    "dense by alignment": "the stage has time to send uncompressed",
    "never pays": "compression never pays on this link",
    "free": "no limit: the rule's own rank stood",
    "Rank": "mean (lowest–highest) over matrices and over the windows that were compressed; of methods without ranks "
    "the share of elements in % or the bits",
    "Relative error": "of one exchange: residual divided by residual and gradient; mean over matrices and the last "
    f"{LAST} windows",
    "Not listed": "methods that decide once: they have no windows",
}


def build(study: Study) -> pd.DataFrame:
    """One row per line and stage: runs, windows (a run), `share_<clamp>`, rank with low and high (or what `unit` says
    that it counts), relative_error."""
    rows = [
        {**line.identity, "stage": int(str(stage)), **_row(own, study)}
        for line in lines(study.frames.runs)
        for stage, own in adaptive(line.of(study.frames.decisions)).groupby("stage")
    ]
    columns = ["model", "method", "title", "device", "status", "stage", "runs", "windows"]
    columns += [*(f"share_{clamp}" for clamp in CLAMPS), "rank", "low_rank", "high_rank", "unit", "relative_error"]
    return pd.DataFrame(rows, columns=columns)


def adaptive(decisions: pd.DataFrame) -> pd.DataFrame:
    """The decisions of runs that decide in every window. A fixed policy decides once, before the first step."""
    return decisions[decisions.groupby("run_id")["step"].transform("nunique") > 1]


#: What a decision's number counts, by its column: as axes say it.
UNITS = {"rank": "rank", "ratio": "share of elements (%)", "bits": "bits"}


def counted(decisions: pd.DataFrame) -> pd.DataFrame:
    """`decisions` whose `rank` is the number that was decided, whatever it counts; `unit` says what, for a run."""
    numbers = pd.DataFrame(
        {name: pd.to_numeric(decisions[name]) if name in decisions else float("nan") for name in UNITS},
        index=decisions.index,
    )
    numbers["ratio"] *= 100
    known = numbers.notna().groupby(decisions["run_id"]).transform("any")
    unit = known.idxmax(axis=1).map(UNITS) if len(known) else pd.Series(dtype=object)
    return decisions.assign(rank=numbers.bfill(axis=1)["rank"], unit=unit)


def in_force(decisions: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The decisions that held for at least one step: the one after the last step is not carried out."""
    iterations = decisions["run_id"].map(runs.set_index("run_id")["spec.training.iterations"]).astype(float)
    return decisions[decisions["step"] < iterations]


def shares(decisions: pd.DataFrame) -> dict[str, float]:
    """Share of each clamp, from 0 to 1, every window of every stage and run counting alike; they add up to 1."""
    kinds = decisions["clamp"].fillna("free")
    windows = [decisions[name] for name in ("run_id", "stage", "step")]
    return {clamp: float((kinds == clamp).astype(float).groupby(windows).mean().mean()) for clamp in CLAMPS}


def overall(line: Line, study: Study) -> dict[str, float]:
    """`share_<clamp>` of a line, all stages together; NaN where it does not decide by windows."""
    held = in_force(adaptive(line.of(study.frames.decisions)), study.frames.runs)
    return {f"share_{clamp}": share for clamp, share in shares(held).items()}


def _row(own: pd.DataFrame, study: Study) -> dict[str, object]:
    held = in_force(counted(own), study.frames.runs)
    row: dict[str, object] = {"runs": own["run_id"].nunique()}
    row["windows"] = held.groupby("run_id")["step"].nunique().mean()
    row |= {f"share_{clamp}": share for clamp, share in shares(held).items()}
    row["unit"] = held["unit"].iloc[0] if len(held) else UNITS["rank"]
    row |= {"rank": held["rank"].mean(), "low_rank": held["rank"].min(), "high_rank": held["rank"].max()}
    latest = own["step"] > own.groupby("run_id")["step"].transform(lambda steps: sorted(set(steps))[-LAST - 1 :][0])
    row["relative_error"] = own.loc[latest, "relative_error"].mean()
    return row


def words(row: pd.Series) -> str:
    """The shares of a row in words, the largest first: `r_min 60 %, free 40 %`."""
    found = {clamp: row[f"share_{clamp}"] for clamp in CLAMPS if row[f"share_{clamp}"] > 0}
    ordered = sorted(found, key=lambda clamp: -found[clamp])
    return ", ".join(f"{CLAMPS[clamp]} {100 * found[clamp]:.0f} %" for clamp in ordered) or NOTHING


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read; a clamp that never acted has no column."""
    shown = pd.DataFrame({"Model": table["model"], "Method": table["title"], "Status": table["status"]})
    shown["Hardware"] = table["device"]
    shown["Stage"], shown["Windows"] = table["stage"], table["windows"].map("{:g}".format)
    for clamp, heading in CLAMPS.items():
        if (table[f"share_{clamp}"] > 0).any():
            shown[heading] = (100 * table[f"share_{clamp}"]).map(percent)
    shown["Rank"] = [_rank(row) for _, row in table.iterrows()]
    shown["Relative error"] = table["relative_error"].map(cell)
    return shown


def _rank(row: pd.Series) -> str:
    if pd.isna(row["rank"]):
        return NOTHING
    if row["unit"] == UNITS["ratio"]:
        return f"{row['rank']:.2g} % ({row['low_rank']:.2g}–{row['high_rank']:.2g})"
    bits = " bits" if row["unit"] == UNITS["bits"] else ""
    return f"{row['rank']:.1f}{bits} ({row['low_rank']:.0f}–{row['high_rank']:.0f})"
