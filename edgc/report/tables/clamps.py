"""What bounded an adaptive method's ranks, and how often its own rule decided."""

from __future__ import annotations

import pandas as pd

from edgc.report.render import NOTHING, cell, percent
from edgc.report.study import Line, Study, framed, lines
from edgc.report.table import IDENTITY, Column, Table

#: What `clamp` says in decisions.jsonl: as printed, and what it is; `free`: nothing, the rule's own rank stood.
CLAMPS = {
    "warmup": ("warm-up", "no rank yet: uncompressed"),
    "r_min": ("r_min", "the lowest rank"),
    "r_max": ("r_max", "the highest rank"),
    "step": ("step limit", "the largest change from window to window"),
    "dense": ("dense by alignment", "the stage has time to send uncompressed"),
    "never_pays": ("never pays", "compression never pays on this link"),
    "free": ("free", "no limit: the rule's own rank stood"),
}
LAST = 5  #: windows at the end of a run whose error is shown


def build(study: Study) -> pd.DataFrame:
    """One row per line and stage: runs, windows (a run), `share_<clamp>`, rank with low and high (or what `unit` says
    that it counts), relative_error."""
    rows = [
        {**line.identity, "stage": int(str(stage)), **_row(own, study)}
        for line in lines(study.frames.runs)
        for stage, own in adaptive(line.of(study.frames.decisions)).groupby("stage")
    ]
    kinds = [f"share_{clamp}" for clamp in CLAMPS]
    return framed(rows, "stage", "runs", "windows", *kinds, "rank", "low_rank", "high_rank", "unit", "relative_error")


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
    return ", ".join(f"{CLAMPS[clamp][0]} {100 * found[clamp]:.0f} %" for clamp in ordered) or NOTHING


def _rank(row: pd.Series) -> str:
    if pd.isna(row["rank"]):
        return NOTHING
    if row["unit"] == UNITS["ratio"]:
        return f"{row['rank']:.2g} % ({row['low_rank']:.2g}–{row['high_rank']:.2g})"
    bits = " bits" if row["unit"] == UNITS["bits"] else ""
    return f"{row['rank']:.1f}{bits} ({row['low_rank']:.0f}–{row['high_rank']:.0f})"


def _share(clamp: str, heading: str) -> Column:
    """A clamp that never acted has no column."""
    key = f"share_{clamp}"
    return Column(heading, key, lambda share: percent(100 * share), when=lambda table: bool((table[key] > 0).any()))


TABLE = Table(
    "What bounded the ranks",
    build,
    {
        "All shares": "of windows, over matrices and seeds, by what decided the rank",
        **IDENTITY,
        Column("Stage", "stage"): "of the pipeline",
        Column("Windows", "windows", "{:g}".format): "of a run",
        **{_share(clamp, heading): text for clamp, (heading, text) in CLAMPS.items()},
        Column("Rank", _rank): "mean (lowest–highest) over matrices and over the windows that were compressed; of "
        "methods without ranks the share of elements in % or the bits",
        Column("Relative error", "relative_error", cell): "of one exchange: residual divided by residual and gradient; "
        f"mean over matrices and the last {LAST} windows",
        "Not listed": "methods that decide once: they have no windows",
    },
)
