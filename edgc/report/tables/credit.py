"""What a method changes against one that is the same but for one thing: what is its own, and what came with the rest.

Muon and an outer momentum lower the loss by themselves, without any exchange. A method that uses them is credited with
the rest only.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.report import verdicts
from edgc.report.cpu_models import pooled
from edgc.report.render import share
from edgc.report.study import Line, Study, baseline_among, framed, lines
from edgc.report.table import IDENTITY, Column, Table
from edgc.report.tables import accuracy

HIGHER, LOWER, EQUAL = "higher loss", "lower loss", "not told apart"


def build(study: Study) -> pd.DataFrame:
    """One row per line with a control (`judgement.controls`): pairs, gap with gap_low and gap_high (nats), verdict, and
    bytes_percent of the control's. Models of CPU are pooled."""
    study = pooled(study)
    rows = [
        _row(line, study) for line in lines(study.frames.runs) if line.method in study.experiment.judgement.controls
    ]
    return framed(rows, "control", "pairs", "gap", "gap_low", "gap_high", "verdict", "bytes_percent")


def _row(line: Line, study: Study) -> dict[str, object]:
    control = baseline_among(line, study.frames.runs, study.experiment.judgement.controls[line.method])
    gaps = verdicts.gaps_to(line, control)
    gap = verdicts.interval_of("gap", gaps, study.experiment.until_decided)
    row: dict[str, object] = {**line.identity, "control": control.title if control else None, "pairs": len(gaps)}
    row |= {**gap, "verdict": _verdict(gap["gap_low"], gap["gap_high"], len(gaps))}
    if control is None:
        return row
    sent = study.frames.evals.groupby("run_id")["wire_bytes"].max()
    own, theirs = (verdicts.mean_bytes(each, sent) for each in (line, control))
    return row | {"bytes_percent": 100 * own / theirs if theirs else np.nan}


def _verdict(low: float, high: float, pairs: int) -> str:
    if pairs < verdicts.MIN_SEEDS:
        return EQUAL
    return HIGHER if low > 0 else LOWER if high < 0 else EQUAL


def paragraph(table: pd.DataFrame) -> str:
    """A sentence for each method that finished with its control."""
    return "\n".join(
        f"{row['title']} against {row['control']}: {row['verdict']}, {accuracy.gap_in_words(row)} nats "
        f"(n = {row['pairs']})."
        for _, row in table[table["pairs"] > 0].iterrows()
    )


TABLE = Table(
    "What is a method's own",
    build,
    {
        **IDENTITY,
        Column("Control", "control"): "the method that it is held against; the experiment names it",
        Column("Pairs", "pairs"): "seeds that both finished",
        Column("Loss gap", accuracy.gap_in_words, unit="nats"): "loss less the control's of the same seed, in nats a "
        "token: mean, and an interval like that of table `accuracy`",
        Column(
            "Verdict", "verdict"
        ): f"“{HIGHER}”: the interval lies above 0; “{LOWER}”: below; “{EQUAL}”: it holds 0, "
        f"or rests on fewer than {verdicts.MIN_SEEDS} pairs",
        Column("Bytes", "bytes_percent", share, "%"): "of gradients, that all ranks sent in a run: in percent of the "
        "control's",
    },
    paragraph,
)
