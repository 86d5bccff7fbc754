"""Published loss gaps by size, ours and others': `edgc evidence METHOD`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from edgc.core.base.errors import UserError
from edgc.report.at_scale import KINDS, AtScale, PublishedGap, at_scale
from edgc.report.gaps import Gap, published_measured
from edgc.report.regime import count
from edgc.report.render import NOTHING, cell, number
from edgc.report.table import Column
from edgc.suite.config import CONFIGS

Row = dict[str, Any]
Evidence = dict[str, list[Row]]  #: rows of `ours`, `theirs`, `laws` and `speeds`


def _plain(value: int | None) -> str:
    return str(value) if value else NOTHING


def _ours_in_words(row: pd.Series) -> str:
    span = f"95 %: {number(row['low'], '+.3f')} to {number(row['high'], '+.3f')}"
    return _listed(row["method"], span, f"n = {row['pairs']}", row["experiment"], row["settings"], row["trained"])


def _theirs_in_words(row: pd.Series) -> str:
    rounded = f"rounded, ± {row['rounding']:.1g}" if row["rounding"] > 0.0011 else ""
    amounts = [f"{what} {row[what]:g}" for what in ("rank", "bits", "ratio") if row[what]]
    against = f"baseline: {row['baseline']}" if row["baseline"] != "dense" else ""
    said_by = f"{KINDS[row['kind']]} {row['cited']}"
    return _listed(row["words"], said_by, row["where"], rounded, *amounts, row["settings"], against, row["note"])


def _listed(*parts: str) -> str:
    return "; ".join(filter(None, parts))


REGIME = (
    Column("Size", "parameters", count),
    Column("Tokens/N", "tokens_a_parameter", cell),
    Column("Steps", "steps", _plain),
    Column("Batch", "batch", count),
    Column("M", "replicas", _plain),
    Column("H", "period", _plain),
    Column("Gap", "gap", lambda gap: number(gap, "+.3f")),
)
OURS = (*REGIME, Column("Method, evidence", _ours_in_words))
THEIRS = (*REGIME, Column("Method, evidence", _theirs_in_words))
COUNTS = (
    Column("Method", "method"),
    Column("Our gaps", "ours"),
    Column("Others' gaps", "theirs"),
    Column("Laws", "laws"),
    Column("Times and rates", "speeds"),
)


def everything(published: Path, configs: Path = CONFIGS) -> Evidence:
    """All evidence there is. A row has a `method`, and may have a `family`: what it is a variant of, or nearest to.

    `ours`: the gaps (nats) of `results/published`; the others: of the files in `configs/reference/at-scale`. Raises
    `UserError` if one of those is not valid.
    """
    ours = dict(published_measured(published, configs))  # a run on several traces counts once
    rows: Evidence = {"ours": [_own(gap) for gap in ours], "theirs": [], "laws": [], "speeds": []}
    for file in at_scale(configs):
        source = {"kind": file.kind, "source": file.source, "file": file.name}
        rows["theirs"] += [_gap(each, file) | source for each in file.gaps]
        rows["laws"] += [each.model_dump() | source for each in file.laws]
        rows["speeds"] += [each.model_dump() | source for each in file.speeds]
        rows["speeds"] += [each.model_dump() | {"simulated": True} | source for each in file.bandwidths]
    return {part: sorted(found, key=_size) for part, found in rows.items()}


def evidence(name: str, found: Evidence) -> Evidence:
    """That of a method, its variants and those near to it. Hyphens count as underscores.

    Raises `UserError` if there is none.
    """
    wanted = name.replace("-", "_")
    if wanted not in (counted := counts(found)):
        raise UserError(
            f"method {name!r}: nothing is published of it, by us or by others; there is evidence of: "
            f"{', '.join(counted)}"
        )
    return {part: [row for row in rows if wanted in _names(row)] for part, rows in found.items()}


def counts(found: Evidence) -> dict[str, Row]:
    """By method: how many rows of each part `evidence` gives."""
    many = {part: Counter(name for row in rows for name in _names(row)) for part, rows in found.items()}
    return {name: {part: of[name] for part, of in many.items()} for name in sorted(set().union(*many.values()))}


def _names(row: Row) -> set[str]:
    return {row["method"], row.get("family") or row["method"]}


def _size(row: Row) -> tuple[Any, ...]:
    return row.get("parameters") or 0, row["method"], row.get("replicas") or 0, row.get("period") or 0


def _own(gap: Gap) -> Row:
    own = {key: value for key, value in asdict(gap).items() if key != "regime"}
    return own | {"trained": gap.trained} | asdict(gap.regime)


def _gap(gap: PublishedGap, file: AtScale) -> Row:
    """`rounding`: how far off printed digits let the gap be (nats)."""
    _, rounding = gap.computed(file.perplexity)
    return gap.model_dump() | asdict(gap.regime) | {"rounding": rounding, "metric": file.metric}


def show(found: Evidence) -> None:
    """Print it, the smallest models first."""
    console = Console(highlight=False, markup=False)
    sources = {row["source"]: KINDS[row["kind"]] for row in found["theirs"] + found["laws"]}
    cited = {source: f"[{index}]" for index, source in enumerate(sources, 1)}
    theirs = [row | {"cited": cited[row["source"]]} for row in found["theirs"]]
    console.print("N: parameters; batch in tokens; M: replicas; H: steps between exchanges; gap in nats")
    console.print("\nOurs, to dense", style="bold")
    console.print(_printed(OURS, found["ours"]) if found["ours"] else "none is published")
    console.print("\nOthers', to their own baseline", style="bold")
    console.print(_printed(THEIRS, theirs) if theirs else "none is known")
    for law in found["laws"]:
        many = f" · M^{law['many']:g}" if law["many"] else ""
        holds = f" for M = {law['replicas']}" if law["replicas"] else ""
        sizes = f"{count(law['smallest'])} to {count(law['largest'])}"
        console.print(
            f"Law{holds}: {law['predicts']} = {law['factor']:g} · N^{law['size']:g}{many}, N from {sizes}; "
            f"{KINDS[law['kind']]} {cited[law['source']]}, {law['where']}"
        )
    for source, kind in sources.items():
        console.print(f"{cited[source]} {kind}: {source}")
    if any(row["kind"] == "third_party" for part in ("theirs", "speeds") for row in found[part]):
        console.print("Third-party notes were copied by somebody else: read the paper before you rely on them.")
    if found["speeds"]:
        simulated = sum(row["simulated"] for row in found["speeds"])
        console.print(
            f"Times and rates: {len(found['speeds']) - simulated} measured, {simulated} simulated by their authors; "
            "--json prints them."
        )


def show_counts(found: Evidence) -> None:
    """Print which methods have evidence, and how much."""
    rows = [{"method": name} | many for name, many in counts(found).items()]
    Console(highlight=False, markup=False).print(_printed(COUNTS, rows))


def _printed(columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """For a terminal; numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    numbers = pd.DataFrame(rows, dtype=object)
    for column in columns:
        words = column.name.startswith("Method")
        table.add_column(column.heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in zip(*(column.values(numbers) for column in columns), strict=True):
        table.add_row(*map(str, row))
    return table
