"""What a paper claims beside what was measured and forecast, one row a claim and source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pandas as pd

from edgc.report.render import NOTHING, cell
from edgc.report.site.contents import Kept

COLUMNS = ("Claim", "Paper", "Ours", "Verdict", "Method", "Measure", "Where", "Reason")


def claims(kept: Iterable[Kept]) -> pd.DataFrame:
    """Every claim: as measured, over all experiments in one row, then as each experiment forecasts it."""
    every = list(kept)
    papers = [paper.assign(experiment=each.name) for each in every if (paper := each.numbers("paper")) is not None]
    measured = _measured(pd.concat(papers)) if papers else ()
    return pd.DataFrame([*measured, *(row for each in every for row in _forecast(each))], columns=COLUMNS)


def _measured(paper: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Tables `paper` of all experiments: a row a claim, measure and verdict, with the span of what they found."""
    keys = ["text", "paper", "qualifier", "unit", "measure", "verdict"]
    for claim, rows in paper.groupby(keys, sort=False, dropna=False):
        text, value, qualifier, unit, measure, verdict = cast(tuple[Any, ...], claim)
        suffix = f" {unit}" if pd.notna(unit) else ""
        told = "" if pd.isna(qualifier) else f"{qualifier} "
        found = rows.dropna(subset="ours")
        reasons = rows["reason"].dropna()
        yield {
            "Claim": text,
            "Paper": NOTHING if pd.isna(value) else f"{told}{value:g}{suffix}",
            "Ours": _span(found["ours"]) + (suffix if len(found) else ""),
            "Verdict": verdict,
            "Method": NOTHING if found.empty else "EDGC",
            "Measure": NOTHING if pd.isna(measure) else measure,
            "Where": NOTHING if found.empty else f"measured in {', '.join(found['experiment'])}",
            "Reason": NOTHING if reasons.empty else reasons.mode().iloc[0],
        }


def _span(values: pd.Series) -> str:
    """From least to most; nothing without a value."""
    if values.empty:
        return NOTHING
    least, most = cell(values.min()), cell(values.max())
    return least if least == most else f"{least} to {most}"


def _forecast(kept: Kept) -> Iterator[dict[str, Any]]:
    """Table `claims`, its rows under all assumptions in one."""
    table = kept.numbers("claims")
    if table is None or table.empty:
        return
    for (text, paper, title, measure), rows in table.groupby(["text", "paper", "title", "measure"], sort=False):
        reached = (rows["verdict"] == "reproduced").sum()
        verdict = "reproduced" if reached == len(rows) else "it depends" if reached else rows["verdict"].iloc[0]
        under = (
            f"reproduced under {reached} of {len(rows)} assumptions; at most {cell(rows['bound'].max())} % could be had"
        )
        yield {
            "Claim": text,
            "Paper": f"{paper:g} %",
            "Ours": f"{_span(rows['ours'])} %",
            "Verdict": verdict,
            "Method": title,
            "Measure": measure,
            "Where": f"forecast in {kept.name}",
            "Reason": under,
        }
