"""Adaptive methods: what bounded their ranks, and how they do against a fixed rank at the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from edgc.report import verdicts
from edgc.report.render import NOTHING, cell, coefficient, gap, number, percent, with_deviation, with_ends
from edgc.report.study import Line, Study, baseline_of, by_line, framed, pooled, pooled_lines
from edgc.report.table import IDENTITY, Column, Table

#: What `clamp` says in decisions.jsonl: as printed, and what it is; `free`: nothing, the rule's own rank stood.
BOUNDS = {
    "warmup": ("warm-up", "no rank yet: uncompressed"),
    "r_min": ("r_min", "the lowest rank"),
    "r_max": ("r_max", "the highest rank"),
    "step": ("step limit", "the largest change from window to window"),
    "dense": ("dense by alignment", "the stage has time to send uncompressed"),
    "never_pays": ("never pays", "compression never pays on this link"),
    "free": ("free", "no limit: the rule's own rank stood"),
}
LAST = 5  #: windows at the end of a run whose error is shown


def _bounded(study: Study) -> pd.DataFrame:
    """One row per line and stage: runs, windows (a run), `share_<clamp>`, rank with low and high (or what `unit` says
    that it counts), relative_error."""
    rows = [
        {**line.identity, "stage": int(str(stage)), **_of_stage(own, study)}
        for line in pooled_lines(study)
        for stage, own in adaptive(line.of(study.frames.decisions)).groupby("stage")
    ]
    kinds = [f"share_{clamp}" for clamp in BOUNDS]
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
    return {clamp: float((kinds == clamp).astype(float).groupby(windows).mean().mean()) for clamp in BOUNDS}


def overall(line: Line, study: Study) -> dict[str, float]:
    """`share_<clamp>` of a line, all stages together; NaN where it does not decide by windows."""
    held = in_force(adaptive(line.of(study.frames.decisions)), study.frames.runs)
    return {f"share_{clamp}": share for clamp, share in shares(held).items()}


def _of_stage(own: pd.DataFrame, study: Study) -> dict[str, object]:
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
    found = {clamp: row[f"share_{clamp}"] for clamp in BOUNDS if row[f"share_{clamp}"] > 0}
    ordered = sorted(found, key=lambda clamp: -found[clamp])
    return ", ".join(f"{BOUNDS[clamp][0]} {100 * found[clamp]:.0f} %" for clamp in ordered) or NOTHING


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


CLAMPS = Table(
    "What bounded the ranks",
    "What bounded an adaptive method's ranks, and how often its own rule decided.",
    _bounded,
    {
        "All shares": "of windows, over matrices and seeds, by what decided the rank",
        **IDENTITY,
        Column("Stage", "stage"): "of the pipeline",
        Column("Windows", "windows", "{:g}".format): "of a run",
        **{_share(clamp, heading): text for clamp, (heading, text) in BOUNDS.items()},
        Column("Rank", _rank): "mean (lowest–highest) over matrices and over the windows that were compressed; of "
        "methods without ranks the share of elements in % or the bits",
        Column("Relative error", "relative_error", cell): "of one exchange: residual divided by residual and gradient; "
        f"mean over matrices and the last {LAST} windows",
        "Not listed": "methods that decide once: they have no windows",
    },
)


#: How far outside the fixed ranks' bytes, as a factor, their loss is still told.
BEYOND = 1.1


@by_line
def _variants(line: Line, study: Study) -> dict[str, object]:
    """One row per line: seeds, loss, gap (nats), payload_mb, wire_mb with ratios, relative_gap, `share_<clamp>`.

    Values with `_sd` are means over seeds; relative_gap has _low and _high.
    """
    own, references = by_seed(line, study), fixed_ranks(line, study)
    fixed = [by_seed(other, study) for other in references]
    row: dict[str, object] = {"seeds": len(own)}
    for name in ("loss", "gap"):
        row |= {name: own[name].mean(), f"{name}_sd": own[name].std()}
    for name in ("payload", "wire"):
        mean = own[f"{name}_bytes"].mean()
        row |= {f"{name}_mb": mean / 1e6, f"{name}_sd_mb": own[f"{name}_bytes"].std() / 1e6}
        row[f"{name}_ratio"] = mean / fixed[0][f"{name}_bytes"].mean() if fixed else np.nan
    row["compressed_percent"] = 100 * own["compressed"].mean()
    itself = line.method in {other.method for other in references}
    return row | relative_gap(own, [] if itself else fixed) | overall(line, study)


def by_seed(line: Line, study: Study) -> pd.DataFrame:
    """Of a line's finished runs by seed: payload_bytes, wire_bytes (of the run), compressed (share), loss, gap.

    The baseline has no gap.
    """
    done = line.done.set_index("seed")
    baseline = None if line.method == study.experiment.judgement.baseline else baseline_of(line, study)
    gaps = verdicts.gaps_to(line, baseline)
    steps = line.done_of(study.frames.steps)
    steps = steps.assign(compressed=steps["payload_bytes"] < steps["dense_bytes"])
    table = pd.DataFrame({"loss": done["validation_loss"], "gap": gaps})
    sums = steps.groupby("seed")[["payload_bytes", "wire_bytes"]].sum()
    return table.join(sums).join(steps.groupby("seed")["compressed"].mean())


def fixed_ranks(line: Line, study: Study) -> list[Line]:
    """PowerSGD at a fixed rank on the line's model and hardware, in the experiment's order."""
    made_of = {"spec.method.aggregator.name": "lowrank", "spec.method.policy.name": "fixed"}
    beside = ((other, other.runs.iloc[0]) for other in line.beside(study.frames.runs))
    return [other for other, run in beside if all(run.get(part) == name for part, name in made_of.items())]


def relative_gap(own: pd.DataFrame, fixed: Sequence[pd.DataFrame]) -> dict[str, float]:
    """The gap against fixed rank's at the same payload: fixed_gap (nats), relative_gap, and its range over seeds.

    NaN without seeds that both have, where one of these sent more or less than fixed ranks tell of, and where fixed
    rank loses nothing that a gap could be compared with.
    """
    points = [(f["payload_bytes"].to_dict(), f["gap"].to_dict()) for f in fixed]
    theirs = {
        seed: gap_at(payload, {sizes[seed]: gaps[seed] for sizes, gaps in points})
        for seed, payload in own["payload_bytes"].items()
        if all(seed in sizes for sizes, _ in points)
    }
    both = own["gap"].index.intersection(list(theirs))
    pairs = pd.concat({"own": own["gap"], "fixed": pd.Series(theirs, dtype=float)}, axis=1).loc[both]
    pairs = pairs.dropna(subset="own")
    mean = pairs.mean(skipna=False)
    ratios = pairs["own"] / pairs["fixed"].where(pairs["fixed"] > 0)
    return {
        "fixed_gap": mean["fixed"],
        "relative_gap": mean["own"] / mean["fixed"] if mean["fixed"] > 0 else np.nan,
        "relative_gap_low": ratios.min(skipna=False) if len(ratios) > 1 else np.nan,
        "relative_gap_high": ratios.max(skipna=False) if len(ratios) > 1 else np.nan,
    }


def gap_at(payload: float, points: Mapping[float, float]) -> float:
    """Fixed rank's gap at `payload` bytes from `points` (bytes → gap): linear in the logarithm of bytes.

    NaN without points, and further than `BEYOND` outside them.
    """
    known = sorted((bytes_, gap) for bytes_, gap in points.items() if np.isfinite(gap))
    if not known or not known[0][0] / BEYOND <= payload <= known[-1][0] * BEYOND:
        return np.nan
    if len(known) == 1:
        return known[0][1]
    sizes, gaps = np.array(known).T
    left = int(np.clip(np.searchsorted(sizes, payload) - 1, 0, len(known) - 2))
    (a, b), (low, high) = np.log(sizes[left : left + 2]), gaps[left : left + 2]
    return float(low + (high - low) * (np.log(payload) - a) / (b - a))


VARIANTS = Table(
    "Variants at equal bytes",
    "Adaptive methods against a fixed rank at the same bytes.",
    lambda study: _variants(pooled(study)),
    {
        "All numbers": "of finished runs; ± is the standard deviation over seeds",
        **IDENTITY,
        Column("Seeds", "seeds"): "runs that finished",
        Column("Validation loss", lambda row: with_deviation(row, "loss")): "final, in nats a token",
        Column("Gap to baseline", lambda row: with_deviation(row, "gap", gap)): "loss less the baseline's of the same "
        "seed",
        Column("Payload", "payload_mb", cell, "MB"): "gradient bytes handed to collectives in the run, with warm-up, "
        "all ranks; MB = 10⁶ bytes",
        Column("Payload ratio", "payload_ratio", coefficient): "to the first method with a fixed rank",
        Column("Wire", "wire_mb", cell, "MB"): "what was sent for it",
        Column("Wire ratio", "wire_ratio", coefficient): "to the first method with a fixed rank",
        Column("Compressed", "compressed_percent", percent): "share of the steps that handed over less than fp32 "
        "gradients",
        Column(
            "Against fixed rank", with_ends("relative_gap", partial(number, form=".2f"))
        ): "mean gap divided by fixed rank's mean gap at the same payload (lowest "
        "to highest seed). Below 1 a method loses less than fixed rank does with these bytes",
        "Fixed rank's gap": "interpolated for every seed, linearly in the logarithm of the bytes, and carried on up to "
        f"{BEYOND:g} times beyond the fixed ranks that were run; a single fixed rank stands for itself as far as that. "
        "– where a seed sent more or less",
        Column("Windows", words): "share of the windows in which each limit decided the rank; see table `clamps`",
    },
)
