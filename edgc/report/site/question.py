"""The question form: what was computed beforehand, with measured loss gaps beside it, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgc.core.base.lazy import pd
from edgc.report.site.forecasts import FILE, POINT, Point
from edgc.report.site.gaps import Gap, measured_gaps
from edgc.suite.cluster.plan import CLEAR
from edgc.suite.config import CONFIGS, Cluster, Method, load
from edgc.suite.config.rate import bits_per_second

if TYPE_CHECKING:
    from edgc.report.site.contents import Kept

MARGINS = (0.005, 0.01, 0.02, 0.05, 0.1)  #: acceptable loss gaps (nats) to choose from
NUMBERS = ("iteration_s", "saving_percent", "low_percent", "high_percent", "break_even_gbit")


@dataclass(frozen=True)
class Choice:
    """One method's forecast and what is known of its quality."""

    method: str
    title: str
    candidate: bool
    iteration_s: float
    saving_percent: float
    low_percent: float
    high_percent: float
    break_even_gbit: float | None
    gap: Gap | None

    def kept(self, margin: float) -> str:
        """yes | no | not known: whether its measured loss gap is within the margin."""
        return "not known" if self.gap is None else "yes" if self.gap.within(margin) else "no"


def verdict(choice: Choice) -> str:
    """pays | does not pay | undecided, as `edgc plan` judges."""
    if choice.high_percent < CLEAR:
        return "does not pay"
    return "pays" if choice.low_percent >= CLEAR else "undecided"


def choose(choices: Sequence[Choice], margin: float) -> tuple[Choice | None, Choice | None]:
    """The fastest method that compresses and is known to keep the loss within the margin, and the fastest of all."""
    candidates = sorted((each for each in choices if each.candidate), key=lambda each: each.iteration_s)
    keeps = [each for each in candidates if each.kept(margin) == "yes"]
    return (keeps[0] if keeps else None), (candidates[0] if candidates else None)


def form(published: Path, kept: Iterable[Kept], configs: Path = CONFIGS) -> dict[str, Any] | None:
    """What the form needs: its lists, every answer, and the gaps. None if no forecasts are published."""
    path = published / FILE
    if not path.is_file():
        return None
    table = pd.read_csv(path)
    methods = list(table["method"].dropna().unique())
    titles = {name: load(Method, name, configs).title for name in methods}
    gaps = measured_gaps(kept)
    return {
        "file": path.name,
        "lists": {
            "model": [(name, name) for name in table["model"].unique()],
            "cluster": [(name, _device(name, configs)) for name in table["cluster"].unique()],
            "nodes": [(str(n), str(n)) for n in sorted(table["nodes"].unique())],
            "link": [(name, _rate(name)) for name in sorted(table["link"].unique(), key=bits_per_second)],
            "latency_ms": [(_plain(ms), _far(ms)) for ms in _latencies(table)],
            "precision": [(name, name) for name in sorted(table["precision"].unique())],
        },
        "margins": MARGINS,
        "data": {
            "clear": CLEAR,
            "methods": methods,
            "titles": titles,
            "gaps": {name: _gap(gaps[name]) for name in methods if name in gaps},
            "points": _points(table, methods),
        },
    }


def _points(table: pd.DataFrame, methods: Sequence[str]) -> dict[str, Any]:
    """By question: layout, source of the rates, command, and by method its numbers; or why there is no answer."""
    found: dict[str, Any] = {}
    plain = table.to_dict("records")
    for asked, answers in groupby(plain, lambda row: [str(row[name]) for name in POINT]):
        rows = list(answers)
        first, (model, cluster, nodes, link, _, precision) = rows[0], asked
        latency = first["latency_ms"]
        point = Point(model, cluster, int(nodes), link, None if pd.isna(latency) else float(latency), precision)
        key = "|".join([model, cluster, nodes, link, _plain(latency), precision])
        if pd.isna(first["method"]):
            found[key] = {"note": first["note"], "command": point.command}
            continue
        numbers = {row["method"]: [_short(row[name]) for name in NUMBERS] for row in rows}
        compressing = [methods.index(row["method"]) for row in rows if row["candidate"]]
        found[key] = {
            "layout": first["layout"],
            "source": first["source"],
            "command": point.command,
            "candidates": compressing,
            "rows": [numbers.get(name) for name in methods],
        }
    return found


def _short(value: float) -> float | str | None:
    """None: nothing; "inf": on every link."""
    return None if pd.isna(value) else "inf" if np.isinf(value) else float(f"{value:.4g}")


def _gap(gap: Gap) -> dict[str, Any]:
    return {"words": gap.words, "high": gap.high}


def _latencies(table: pd.DataFrame) -> list[float]:
    values = table["latency_ms"].unique()
    return sorted(values, key=lambda ms: -1.0 if pd.isna(ms) else float(ms))


def _plain(ms: float) -> str:
    return "" if pd.isna(ms) else f"{ms:g}"


def _far(ms: float) -> str:
    return "inside a data centre" if pd.isna(ms) else f"{ms:g} ms one way"


def _rate(link: str) -> str:
    for unit in ("mbit", "gbit"):
        if link.endswith(unit):
            return f"{link.removesuffix(unit)} {unit.capitalize()}/s"
    return link


def _device(cluster: str, configs: Path) -> str:
    found = load(Cluster, cluster, configs)
    return f"{found.processes_per_node} × {found.device_model} a node"


def choices(rows: Iterable[Mapping[str, Any]], gaps: Mapping[str, Gap], configs: Path = CONFIGS) -> list[Choice]:
    """Forecasts of one question with their gaps. Each row: method, candidate and `NUMBERS`."""
    return [
        Choice(
            method=row["method"],
            title=load(Method, row["method"], configs).title,
            candidate=bool(row["candidate"]),
            **{name: row[name] for name in NUMBERS},
            gap=gaps.get(row["method"]),
        )
        for row in rows
    ]
