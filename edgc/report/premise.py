"""A stage's gradients in a few numbers: how entropy moves, how random they are, and what entropy tells of a rank."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.core.policies.rank_model import rank_for
from edgc.report.low_rank import (
    cosines,
    each,
    errors,
    largest_value,
    law_singular_values,
    log_errors,
    rank_that_leaves,
)
from edgc.report.window_means import EARLY, FULL, EntropyTrajectory, correlation

RANK = 16  #: whose error entropy is held against, and from which a rank is followed


def late(rows: pd.DataFrame) -> pd.DataFrame:
    """The late ones of the rows that `low_rank.spectra` gives."""
    return rows[rows["step"] > EARLY * rows["iterations"]]


def movement(entropy: EntropyTrajectory) -> dict[str, float]:
    """Change of entropy in nats: `early`, from the first window to the first late one; `late`, from there to the last
    tenth of the steps."""
    nats = entropy.nats[FULL]
    after = nats[nats.index > entropy.late].iloc[: entropy.window].mean()
    last = nats[nats.index > 0.9 * entropy.iterations].mean()
    return {"early": float(after - nats.iloc[: entropy.window].mean()), "late": float(last - after)}


def randomness(rows: pd.DataFrame) -> dict[str, float]:
    """Against an i.i.d. normal matrix: error of rank 8 and 32 (`ratio_8`, `ratio_32`), largest singular value (`edge`,
    median), excess `kurtosis` (median), mean |cosine| of two matrices of a shape against chance's (`alike`).

    `rows`: one stage's of what `low_rank.spectra` gives.
    """
    left = errors(rows, (8, 32))
    ratios = (left["relative"] / left["iid"]).groupby(left["rank"]).mean()
    pairs = cosines(rows).dropna(subset=["other"])
    edges = [
        largest_value(row["curve"]) / (row["deviation"] * law_singular_values(row["rows"], row["columns"])[0])
        for row in each(rows)
    ]
    return {
        **{f"ratio_{rank}": ratio for rank, ratio in ratios.items()},
        "edge": float(np.median(edges)),
        "kurtosis": float(rows["kurtosis"].median()),
        "alike": float((pairs["cosine"].abs() / pairs["chance"]).mean()),
    }


def prediction(windows: pd.DataFrame) -> dict[str, float]:
    """Of what `by_window` gives: correlation of the changes of entropy with those of the log error; highest by lowest
    relative error; mean distance of the rule's rank from the one needed."""
    change = windows.diff()
    return {
        "changes": correlation(change["entropy"], change["log_error"]),
        "relative_range": float(np.exp(np.ptp(windows["log_relative"]))),
        "rank_distance": float((windows["needed_rank"] - windows["rule_rank"]).abs().mean()),
    }


def by_window(entropy: EntropyTrajectory, rows: pd.DataFrame) -> pd.DataFrame:
    """One stage by its probe's window (index): means over the window's looks at spectra of

    entropy (of the same steps), log_error and log_relative of `RANK` (nats; mean over matrices); needed_rank, the
    common rank that leaves the log error that `RANK` left in the first window; rule_rank, what the paper's rule makes
    of the entropy since then. NaN where `RANK` leaves nothing of some matrix.
    """
    looks = pd.DataFrame(
        [
            {"window": (int(str(step)) - 1) // entropy.window, "step": step, "curve": log_errors(list(own["curve"]))}
            for step, own in rows.groupby("step")
        ]
    )
    nats = looks["step"].map(entropy.nats[FULL])
    shortest = looks["curve"].map(len).min()
    curves = [np.mean([c[:shortest] for c in own], axis=0) for _, own in looks.groupby("window")["curve"]]
    left = [curve[RANK] if shortest > RANK else np.nan for curve in curves]
    table = pd.DataFrame({"entropy": nats.groupby(looks["window"]).mean()})
    table["log_error"] = left
    table["log_relative"] = [own - curve[0] for own, curve in zip(left, curves, strict=True)]
    table["needed_rank"] = [rank_that_leaves(left[0], curve) for curve in curves]
    shapes = rows.groupby("parameter")[["rows", "columns"]].first()
    same = [(int(m), int(n)) for m, n in shapes.to_numpy()]
    table["rule_rank"] = [rank_for(same, RANK, table["entropy"].iloc[0], now) for now in table["entropy"]]
    return table
