"""What more replicas cost: every method's loss gap at each degree of data parallelism."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from edgc.report.render import NOTHING, gap, loss
from edgc.report.study import Study
from edgc.report.table import METHOD, MODEL, Column, Table
from edgc.report.tables import accuracy
from edgc.report.verdicts import difference, spread

COLUMNS = ["replicas", "model", "method", "title", "device", "status", "seeds", "loss", "loss_sd"]
COLUMNS += ["pairs", "gap", "gap_low", "gap_high", "gap_sd", "verdict"]
HURT, HELP, EQUAL = "hurt", "help", "not told apart"
SAID = {HURT: "More replicas hurt", HELP: "More replicas help", EQUAL: "Few and many replicas are not told apart in"}


def build(study: Study) -> pd.DataFrame:
    """Tables `accuracy` of this experiment and of `judgement.replicas_from`, with the degree of data parallelism.

    A method that others trained with one degree only is left out.
    """
    found = {**study.replicas, study.experiment.parallel.data: accuracy.build(study)}
    rows = [table.assign(replicas=degree) for degree, table in sorted(found.items())]
    table = pd.concat([table.reindex(columns=COLUMNS) for table in rows], ignore_index=True)
    table["gap_sd"] = [spread(row) for _, row in table.iterrows()]
    degrees = table.groupby(["model", "method"])["replicas"].transform("nunique")
    return table[(degrees > 1) | (table["replicas"] == study.experiment.parallel.data)].reset_index(drop=True)


def paragraph(table: pd.DataFrame) -> str:
    """Which methods more replicas hurt, or help, and by how much."""
    degrees = table["replicas"].unique()
    if len(degrees) < 2:
        return f"Only {degrees[0]} replicas were trained, or the others are not published." if len(degrees) else ""
    told: dict[str, list[str]] = {effect: [] for effect in SAID}
    for title, own in _methods(table):
        if effect := _effect(own):
            low, high = _ends(own)
            more = gap(difference(low, high)[0])
            told[effect].append(f"{title} ({more} nats from {low['replicas']} to {high['replicas']})")
    return "\n".join(f"{SAID[effect]} {'; '.join(titles)}." for effect, titles in told.items() if titles)


def _methods(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Title and rows of each method, by degree. Hardware is not told apart: a sweep may cross machines."""
    for (_, title), own in table.sort_values("replicas", kind="stable").groupby(["model", "title"], sort=False):
        yield str(title), own


def _ends(own: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    return own.iloc[0], own.iloc[-1]


def _effect(own: pd.DataFrame) -> str | None:
    """What more replicas do; None where an end has no interval, and for the baseline."""
    _, low, high = difference(*_ends(own))
    if len(own) < 2 or np.isnan(low) or "baseline" in set(own["verdict"]):
        return None
    return HURT if low > 0 else HELP if high < 0 else EQUAL


def _by_method(table: pd.DataFrame) -> pd.DataFrame:
    """One line per method; a loss and a gap per degree (see `_degrees`)."""
    rows = []
    for title, own in _methods(table):
        row: dict[str, object] = {"model": own["model"].iloc[0], "title": title}
        for _, each in own.iterrows():
            many = f"{each['replicas']} replica{'s' if each['replicas'] > 1 else ''}"
            row[f"Loss, {many}"] = loss(each["loss"]) if each["status"] == "done" else each["status"]
            row[f"Gap, {many}"] = accuracy.gap_in_words(each)
        effect = _effect(own)
        more = accuracy.interval(*difference(*_ends(own)))
        rows.append(row | {"more": f"{more}: {effect}" if effect else NOTHING})
    return pd.DataFrame(rows)


def _degrees(table: pd.DataFrame) -> list[Column]:
    return [Column(name, name) for name in map(str, table) if name.startswith(("Loss, ", "Gap, "))]


TABLE = Table(
    "Replicas",
    build,
    {
        MODEL: "",
        METHOD: "",
        _degrees: "",
        "Loss, … replicas": "final validation loss in nats a token, mean over seeds. Where runs did not finish: how "
        "they ended",
        "Gap, … replicas": "loss less that of the baseline with as many replicas: mean and 95 % confidence interval",
        Column("More replicas", "more"): "the gap with most replicas less that with fewest, in nats, and Welch's 95 % "
        f"interval; “{HURT}”: it lies above 0; “{HELP}”: below; “{EQUAL}”: 0 is in it",
    },
    paragraph,
    _by_method,
)
