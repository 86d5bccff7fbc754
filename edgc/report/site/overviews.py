"""The page's tables over all experiments: what a paper claims beside what was found, and what made each number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import pandas as pd

from edgc.report.render import NOTHING, cell
from edgc.report.site.contents import Kept
from edgc.suite.config.provenance import is_committed

CLAIMS = ("Claim", "Paper", "Ours", "Verdict", "Method", "Measure", "Where", "Reason")
SHORT = 10  #: digits of a commit that tell it apart
PACKAGES = ("torch", "megatron-core", "triton", "numpy")  #: whose versions matter most


def claims(kept: Iterable[Kept]) -> pd.DataFrame:
    """Every claim: as measured, over all experiments in one row, then as each experiment forecasts it."""
    every = list(kept)
    papers = [paper.assign(experiment=each.name) for each in every if not (paper := each.numbers("paper")).empty]
    measured = _measured(pd.concat(papers)) if papers else ()
    return pd.DataFrame([*measured, *(row for each in every for row in _forecast(each))], columns=CLAIMS)


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
    if table.empty:
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


def made(kept: Iterable[Kept]) -> pd.DataFrame:
    """What made each published number: a row an experiment."""
    return pd.DataFrame([_origin(each) for each in kept])


def _origin(kept: Kept) -> dict[str, Any]:
    manifests = kept.manifests
    commits = _each(str(each.get("git_commit") or "in no commit")[:SHORT] for each in manifests)
    changed = any(each.get("git_dirty") and not is_committed(each) for each in manifests)
    seeds = {each["seed"] for each in manifests if each.get("seed") is not None}
    return {
        "Experiment": kept.name,
        "Kind": {"train": "training", "time": "timing", "simulate": "forecast", "study": "study"}[kept.mode],
        "Hardware": _each(_device(each) for each in manifests),
        "Runs": len(manifests),
        "Seeds": len(seeds) or NOTHING,
        "Commit": commits + (" and changes in no commit" if changed else ""),
        "Packages": _each(_packages(each) for each in manifests),
        "Python": _each(str(each.get("python", NOTHING)) for each in manifests),
    }


def _each(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(words)) or NOTHING


def _device(manifest: Mapping[str, Any]) -> str:
    device = manifest.get("device")
    return f"{device['count']} × {device['model']}" if device else "none: computed by a model"


def _packages(manifest: Mapping[str, Any]) -> str:
    versions = manifest.get("packages", {})
    return ", ".join(f"{name} {versions[name]}" for name in PACKAGES if versions.get(name))
