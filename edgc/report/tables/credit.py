"""What a method changes against one that is the same but for one thing: what is its own, and what came with the rest.

Muon and an outer momentum lower the loss by themselves, without any exchange. A method that uses them is credited with
the rest only.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.report import verdicts
from edgc.report.cpu_models import pooled
from edgc.report.render import NOTHING, cell
from edgc.report.study import Line, Study, baseline_among, lines
from edgc.report.tables import accuracy

TITLE = "What is a method's own"

CAPTION = {
    "Control": "the method that it is held against; the experiment names it",
    "Pairs": "seeds that both finished",
    "Loss gap": "loss less the control's of the same seed, in nats a token: mean, and an interval like that of table "
    "`accuracy`",
    "Verdict": "“higher loss”: the interval lies above 0; “lower loss”: below; “not told apart”: it holds 0, or rests "
    f"on fewer than {verdicts.MIN_SEEDS} pairs",
    "Bytes": "of gradients, that all ranks sent in a run: in percent of the control's",
}
HIGHER, LOWER, EQUAL = "higher loss", "lower loss", "not told apart"


def build(study: Study) -> pd.DataFrame:
    """One row per line with a control (`judgement.controls`): pairs, gap with gap_low and gap_high (nats), verdict, and
    bytes_percent of the control's. Models of CPU are pooled."""
    study = pooled(study)
    rows = [
        _row(line, study) for line in lines(study.frames.runs) if line.method in study.experiment.judgement.controls
    ]
    columns = ["model", "method", "title", "device", "status", "control", "pairs", "gap", "gap_low", "gap_high"]
    return pd.DataFrame(rows, columns=[*columns, "verdict", "bytes_percent"])


def _row(line: Line, study: Study) -> dict[str, object]:
    control = baseline_among(line, study.frames.runs, study.experiment.judgement.controls[line.method])
    gaps = verdicts.gaps_to(line, control)
    gap, low, high = verdicts.interval(gaps, study.experiment.until_decided)
    row: dict[str, object] = {**line.identity, "control": control.title if control else None, "pairs": len(gaps)}
    row |= {"gap": gap, "gap_low": low, "gap_high": high, "verdict": _verdict(low, high, len(gaps))}
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
        f"{row['title']} against {row['control']}: {row['verdict']}, {accuracy.gap(row)} nats (n = {row['pairs']})."
        for _, row in table[table["pairs"] > 0].iterrows()
    )


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read."""
    shown = pd.DataFrame({"Model": table["model"], "Method": table["title"], "Status": table["status"]})
    shown["Hardware"], shown["Control"] = table["device"], table["control"].fillna(NOTHING)
    shown["Pairs"] = table["pairs"]
    shown["Loss gap (nats)"] = [accuracy.gap(row) for _, row in table.iterrows()]
    shown["Verdict"] = table["verdict"]
    shown["Bytes (%)"] = [cell(share, " %") for share in table["bytes_percent"]]
    return shown
