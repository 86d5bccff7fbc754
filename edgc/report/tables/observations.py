"""What a real run's gradients say about EDGC's premise, in numbers and in words.

The premise has three parts: (a) entropy falls while a model trains, so that compression may grow; (b) a gradient is
like a matrix of independent normal elements, so that the law of Marchenko and Pastur gives the error of a rank;
(c) therefore entropy tells the rank that holds the error. Every measure has two limits, fixed here: beyond one it
supports its part, beyond the other it contradicts it, between them it does so in part.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from edgc.report.low_rank import RANK, by_window, late, movement, prediction, randomness, spectra
from edgc.report.render import NOTHING, number, with_range
from edgc.report.study import Line, Study, framed, pooled_lines
from edgc.report.table import PROBED, Column, Table
from edgc.report.verdicts import MIN_SEEDS, interval_of
from edgc.report.window_means import EARLY, trajectories

PARTS = {
    "falls": "Entropy falls while the model trains",
    "random": "A gradient is like a matrix of independent normal elements",
    "predicts": "Entropy tells the rank that holds the error",
}
SUPPORTS, PARTLY, CONTRADICTS = "supports", "in part", "contradicts"
SHARE = 2 / 3  #: of a part's verdicts that decides it


class Measure(NamedTuple):
    """One number about one part of the premise. Between the limits it supports that part partly."""

    part: str
    supports: float  #: at this value, and on the side away from `contradicts`, the part is supported
    contradicts: float
    text: str

    def verdict(self, value: float) -> str:
        """SUPPORTS, PARTLY or CONTRADICTS."""
        sign = 1 if self.supports > self.contradicts else -1
        if sign * value >= sign * self.supports:
            return SUPPORTS
        return CONTRADICTS if sign * value <= sign * self.contradicts else PARTLY

    def of_seeds(self, values: pd.Series) -> dict[str, object]:
        """Mean and 95 % interval over seeds, with a verdict: of the interval's ends if they agree, else PARTLY. Fewer
        than `MIN_SEEDS` have their mean's."""
        own = interval_of("value", values)
        told = ["value_low", "value_high"] if len(values) >= MIN_SEEDS else ["value"]
        found = {self.verdict(own[name]) for name in told}
        return {**own, "seeds": len(values), "verdict": found.pop() if len(found) == 1 else PARTLY}


_moves = partial(Measure, "falls", -0.05, 0.05)
_random = partial(Measure, "random")
_predicts = partial(Measure, "predicts")


def _error_of(rank: int) -> Measure:
    return _random(0.9, 0.5, f"Error of rank {rank}, divided by a random matrix's")


#: By the name that `edgc.report.low_rank` gives a number.
MEASURES = {
    "early": _moves(f"Change of entropy in the first {100 * EARLY:g} % of the steps (nats)"),
    "late": _moves("Change of entropy from there to the last tenth of the run (nats)"),
    "late_histogram": _moves("The same, by the released code's histogram (nats)"),
    "ratio_8": _error_of(8),
    "ratio_32": _error_of(32),
    "edge": _random(1.2, 2.0, "Largest singular value, divided by a random matrix's, median"),
    "kurtosis": _random(1.0, 3.0, "Excess kurtosis of the elements, median"),
    "offset": _random(0.05, 0.25, "Size of the elements' mean in standard deviations, median"),
    "alike": _random(2.0, 10.0, "Cosine of two matrices of one shape, mean size divided by chance's"),
    "changes": _predicts(0.7, 0.3, f"Correlation of changes: entropy, log error of rank {RANK}"),
    "relative_range": _predicts(1.1, 1.5, f"Relative error of rank {RANK}, highest window divided by lowest"),
    "rank_distance": _predicts(
        2.0, 8.0, f"Distance of the rule's rank from the one that holds the error, both from {RANK}, mean"
    ),
}


def build(study: Study) -> pd.DataFrame:
    """One row per line, measure and stage: part, measure, value with value_low and value_high (over seeds), limits,
    verdict.

    The last row of a part has no stage, but `words`: the part's verdict.
    """
    rows = []
    for line in pooled_lines(study):
        own = _by_run(line, study)
        found = [
            {**line.identity, "part": measure.part, "stage": stage, "measure": measure.text}
            | {"supports": measure.supports, "contradicts": measure.contradicts, **measure.of_seeds(values)}
            for name, measure in MEASURES.items()
            if name in own
            for stage, values in own.dropna(subset=name).groupby("stage")[name]
        ]
        for part in dict.fromkeys(row["part"] for row in found):
            verdicts = [str(row["verdict"]) for row in found if row["part"] == part]
            rows += [row for row in found if row["part"] == part]
            rows.append({**line.identity, "part": part, "measure": "together", **conclusion(part, verdicts)})
    values = ("value", "value_low", "value_high", "seeds")
    return framed(rows, "part", "stage", "measure", *values, "supports", "contradicts", "verdict", "words")


def conclusion(part: str, verdicts: list[str]) -> dict[str, str]:
    """What a part's verdicts come to together. It is decided if at least `SHARE` of them agree."""
    counts = {verdict: verdicts.count(verdict) for verdict in (SUPPORTS, PARTLY, CONTRADICTS)}
    decided = next((v for v in (SUPPORTS, CONTRADICTS) if counts[v] >= SHARE * len(verdicts)), PARTLY)
    found = {SUPPORTS: "these gradients support it", CONTRADICTS: "these gradients contradict it"}
    told = found.get(decided, "these gradients support it in part")
    shares = ", ".join(f"{count} × {verdict}" for verdict, count in counts.items() if count)
    return {"verdict": decided, "words": f"“{PARTS[part]}”: {told} ({shares})."}


def _by_run(line: Line, study: Study) -> pd.DataFrame:
    """Values of every run and stage, by measure (columns); what was not probed is missing."""
    entropy = {(t.run_id, t.stage, t.estimator): t for t in trajectories(line, study)}
    found = []
    for (run, stage), rows in spectra(line, study).groupby(["run_id", "stage"]):
        own = late(rows)
        if own.empty:
            continue
        values = randomness(own)
        if gaussian := entropy.get((str(run), int(str(stage)), "gaussian")):
            values |= movement(gaussian) | prediction(by_window(gaussian, own))
        if histogram := entropy.get((str(run), int(str(stage)), "histogram")):
            values["late_histogram"] = movement(histogram)["late"]
        found.append({"stage": stage, **values})
    return pd.DataFrame(found)


def _together(table: pd.DataFrame) -> str:
    """Each part's verdict in words."""
    seeds = f", n = {table['seeds'].max():.0f}" if "seeds" in table and len(table) else ""  # older numbers have none
    parts = table[table["stage"].isna()]
    return "\n".join(f"{row['model']}{seeds}: {row['words']}" for _, row in parts.iterrows())


def _value(row: pd.Series) -> str:
    low, high = (row.get(name, np.nan) for name in ("value_low", "value_high"))  # older numbers have none
    return with_range(row["value"], low, high, between=" to ")


def _limits(row: pd.Series) -> str:
    if pd.isna(row["supports"]):
        return NOTHING
    signs = ("≥", "≤") if row["supports"] > row["contradicts"] else ("≤", "≥")
    return " | ".join(
        f"{sign} {row[kind]:g}".replace("-", "−") for sign, kind in zip(signs, ("supports", "contradicts"), strict=True)
    )


OBSERVATIONS = Table(
    "The premise, observed",
    str(__doc__),
    build,
    {
        **PROBED,
        Column("Premise", "part", PARTS.get): "one of its three parts",
        Column("Stage", "stage", lambda stage: "all" if pd.isna(stage) else f"{stage:.0f}"): "of the pipeline; all: "
        "what the part's measures come to together",
        Column("Measure", "measure"): f"without a time: of the steps after the first {100 * EARLY:g} %",
        Column("Value", _value): "mean over seeds, in brackets its 95 % confidence interval (Student's t)",
        Column("n", "seeds", lambda n: number(n, ".0f"), when=lambda numbers: "seeds" in numbers): "seeds",
        Column("Supports | contradicts", _limits): "limits, fixed in the code. Between them a measure supports its "
        "part in part",
        Column("Verdict", "verdict"): f"of the whole interval, or of the mean with fewer than {MIN_SEEDS} seeds; of "
        "this model, text and length of training only",
        "Entropy": "mean over a stage's matrices, of every element of the first data-parallel rank's gradient before "
        "the exchange",
        "Errors and spectra": "of the averaged gradient, exact, from its singular values",
        "Random matrix": "an i.i.d. normal matrix of the same shape, by the law of Marchenko and Pastur",
        "Windows": "those of the run's probe; a change is from one to the next",
    },
    _together,
)
