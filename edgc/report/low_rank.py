"""The error that a rank leaves of a gradient, from its measured spectrum, beside the law that EDGC's rule assumes.

And a stage's gradients in a few numbers: how entropy moves, how random they are, and what entropy tells of a rank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from edgc.core.policies.rank_model import Array, error_curve, rank_for
from edgc.report.study import Line, Study
from edgc.report.window_means import EARLY, FULL, EntropyTrajectory, correlation

#: Ranks whose error is told.
RANKS = (4, 8, 16, 32)
RANK = 16  #: whose error entropy is held against, and from which a rank is followed

KEY = ["run_id", "seed", "stage", "step"]


def true_curve(singular_values: Sequence[float]) -> Array:
    """‖M − M_r‖ at r = 0, 1, …, min(m, n) for the best rank-r M_r: the root of the energy below the r-th value."""
    energy = np.square(np.asarray(singular_values, dtype=float))
    return np.sqrt(np.append(np.cumsum(energy[::-1])[::-1], 0.0))


def spectra(line: Line, study: Study) -> pd.DataFrame:
    """The line's rows of the frame `spectra` whose gradient was finite and not zero: KEY, parameter, rows, columns,
    deviation, kurtosis, iterations, window, and `curve`, the array that `true_curve` gives."""
    rows = line.of(study.frames.spectra)
    rows = rows[rows["deviation"] > 0]
    runs = line.runs.set_index("run_id")
    wanted = {"iterations": "spec.training.iterations", "window": "spec.training.probe.window"}
    known = {name: rows["run_id"].map(runs[column]).astype(float) for name, column in wanted.items() if column in runs}
    curves = [true_curve(json.loads(values)) for values in rows["singular_values"]]
    return rows.assign(**known, curve=pd.Series(curves, index=rows.index, dtype=object))


def moments_of_training(steps: pd.Series) -> list[int]:
    """Of these steps the first, those nearest to a tenth and to a half of the last, and the last."""
    known = sorted(steps.unique())
    wanted = [0.0, 0.1, 0.5, 1.0] if known else []
    return sorted({min(known, key=lambda step: abs(step - share * known[-1])) for share in wanted})


def errors(rows: pd.DataFrame, ranks: Sequence[int] = RANKS) -> pd.DataFrame:
    """Of rows that `spectra` gave, one row per matrix, step and rank: `error` ‖M − M_r‖, `relative` to ‖M‖, `iid` the
    relative error under the law of Marchenko and Pastur. Ranks that leave nothing are left out."""
    found = []
    for row in rows.to_dict("records"):
        law, curve = error_curve(row["rows"], row["columns"]), row["curve"]
        common = {name: row[name] for name in (*KEY, "parameter")}
        for rank in (r for r in ranks if r < len(law) - 1):
            left = {"error": curve[rank], "relative": curve[rank] / curve[0], "iid": law[rank] / law[0]}
            found.append(common | {"rank": rank} | left)
    return pd.DataFrame(found, columns=[*KEY, "parameter", "rank", "error", "relative", "iid"])


def singular_values(curve: Array) -> Array:
    """Of the matrix that leaves `curve`, falling; of an i.i.d. one expected, if that is the law's error curve."""
    return np.sqrt(-np.diff(np.square(curve)))


def log_errors(curves: Sequence[Array]) -> Array:
    """Mean over matrices of ln ‖M − M_r‖ at r = 0, 1, … up to the last rank that leaves something of every matrix.

    Entropy is averaged over matrices too, and a normal one's is ln σ plus a constant: by the law of Marchenko and
    Pastur this moves with the mean entropy, nat by nat.
    """
    ranks = min(int(np.count_nonzero(curve > 0)) for curve in curves)
    return np.mean([np.log(curve[:ranks]) for curve in curves], axis=0)


def rank_that_leaves(log_error: float, curve: Array) -> float:
    """The rank at which a curve of `log_errors` is `log_error`; linear between integers, 0 beyond its start."""
    return float(np.interp(log_error, curve[::-1], np.arange(len(curve))[::-1]))


def cosines(rows: pd.DataFrame) -> pd.DataFrame:
    """Of rows of the frame `spectra`, one row per pair of matrices: KEY, parameter, other (None: the same matrix at the
    last look), cosine, and chance, the mean |cosine| of two independent random matrices of that shape."""
    found = []
    for row in rows.to_dict("records"):
        alike: Mapping[str | None, float | None] = {None: row["previous"], **json.loads(row["alike"])}
        common = {name: row[name] for name in (*KEY, "parameter")}
        chance = np.sqrt(2 / (np.pi * row["rows"] * row["columns"]))
        found += [common | {"other": other, "cosine": cosine, "chance": chance} for other, cosine in alike.items()]
    table = pd.DataFrame(found, columns=[*KEY, "parameter", "other", "cosine", "chance"])
    return table.astype({"cosine": float}).dropna(subset=["cosine"])


def late(rows: pd.DataFrame) -> pd.DataFrame:
    """The late ones of the rows that `spectra` gives."""
    return rows[rows["step"] > EARLY * rows["iterations"]]


def movement(entropy: EntropyTrajectory) -> dict[str, float]:
    """Change of entropy in nats: `early`, from the first window of steps to the first late one; `late`, from there to
    the last tenth of the steps."""
    nats = entropy.nats[FULL]
    after = nats[(nats.index > entropy.late) & (nats.index <= entropy.late + entropy.window)].mean()
    last = nats[nats.index > 0.9 * entropy.iterations].mean()
    return {"early": float(after - nats[nats.index <= entropy.window].mean()), "late": float(last - after)}


def randomness(rows: pd.DataFrame) -> dict[str, float]:
    """Against an i.i.d. normal matrix: error of rank 8 and 32 (`ratio_8`, `ratio_32`), largest singular value (`edge`,
    median), excess `kurtosis` (median), size of the elements' mean in standard deviations (`offset`, median), mean
    |cosine| of two matrices of a shape against chance's (`alike`).

    `rows`: one stage's of what `spectra` gives.
    """
    left = errors(rows, (8, 32))
    ratios = (left["relative"] / left["iid"]).groupby(left["rank"]).mean()
    pairs = cosines(rows).dropna(subset=["other"])
    edges = [
        singular_values(row["curve"])[0] / (row["deviation"] * singular_values(law)[0])
        for row in rows.to_dict("records")
        for law in [error_curve(row["rows"], row["columns"])]
    ]
    return {
        **{f"ratio_{rank}": ratio for rank, ratio in ratios.items()},
        "edge": float(np.median(edges)),
        "kurtosis": float(rows["kurtosis"].median()),
        "offset": float((rows["mean"].abs() / rows["deviation"]).median()),
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
