"""Loss gaps at every rung: sizes, tokens a parameter, steps and replicas, each method at its own best rate there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from edgc.report.at_scale import AtScale, at_scale
from edgc.report.nearest import by_laws
from edgc.report.regime import Regime, count
from edgc.report.render import loss
from edgc.report.study import Study
from edgc.report.table import METHOD, Table, beginning
from edgc.report.tables import accuracy

OF_RUNG = ["parameters", "tokens_a_parameter", "steps", "batch", "shared_by"]
COLUMNS = ["rung", "model", "method", "title", *OF_RUNG, "replicas", "period", "lr", "status", "seeds", "loss"]
COLUMNS += ["loss_sd", "pairs", "gap", "gap_low", "gap_high", "verdict", "law", "law_says"]


def build(study: Study) -> pd.DataFrame:
    """Tables `accuracy` of this experiment's methods here and in `judgement.rungs_from`, with regime and rate.

    `shared_by`: replicas that share a global batch; `law`: the gap (nats) that a published law gives, at `replicas`
    and `period`, and `law_says` whose it is. The smallest models first, then the fewest steps.
    """
    own = accuracy.build(study)
    rows = [(own if table is None else table).merge(regimes, on=["model", "method"]) for table, regimes in study.rungs]
    table = pd.concat([pd.DataFrame(columns=COLUMNS), *rows], ignore_index=True)
    table = table[table["method"].isin(own["method"])]
    table["title"] = table["method"].map(own.drop_duplicates("method").set_index("method")["title"])
    table["rung"] = [_rung(row) for _, row in table.iterrows()]
    files = at_scale(study.configs)
    laws = [_law(row, files) for _, row in table.iterrows()]
    table["law"], table["law_says"] = zip(*laws, strict=True) if laws else ([], [])
    return table.sort_values([*OF_RUNG], kind="stable").reindex(columns=COLUMNS).reset_index(drop=True)


def _rung(row: pd.Series) -> str:
    tokens = f"{row['tokens_a_parameter']:.2g}"
    many = f", {row['shared_by']} replicas" if row["shared_by"] != 1 else ", 1 replica"
    return f"{count(row['parameters'])}, {tokens} tokens a parameter, {row['steps']} × {row['batch']}{many}"


def _law(row: pd.Series, files: list[AtScale]) -> tuple[float, str | None]:
    """What a law says of a method of local steps, of as many replicas, the same period, and about as many tokens."""
    regime = Regime(row["parameters"], replicas=row["replicas"])
    for law in (law for file in files for law in by_laws(file, row["method"], regime)):
        trained = law.regime.tokens_a_parameter
        if law.regime.period == row["period"] and trained and 0.5 <= row["tokens_a_parameter"] / trained <= 2:
            return law.gap, f"{law.law}, {law.source}"
    return np.nan, None


def _by_method(table: pd.DataFrame) -> pd.DataFrame:
    """One line per method; a gap per rung."""
    rows = []
    for title, own in table.groupby("title", sort=False):
        cells = {f"Gap, {each['rung']}": _gap(each) for _, each in own.iterrows()}
        rows.append({"title": title} | cells)
    return pd.DataFrame(rows).reindex(columns=["title", *(f"Gap, {rung}" for rung in table["rung"].unique())])


def _gap(row: pd.Series) -> str:
    if row["verdict"] == "baseline":
        return f"{loss(row['loss'])} nats at {row['lr']:g}"
    return f"{accuracy.gap_in_words(row)} at {row['lr']:g}" if row["status"] == "done" else str(row["status"])


def _in_words(table: pd.DataFrame) -> Iterator[str]:
    """Whose verdict changes from rung to rung, and what a law says beside ours."""
    for title, own in table[table["verdict"].isin(("worse", "preserved", "better"))].groupby("title", sort=False):
        if own["verdict"].nunique() > 1:
            said = (
                f"{each['verdict']} at {each['rung']} ({accuracy.gap_in_words(each)})" for _, each in own.iterrows()
            )
            yield f"{title}: {'; '.join(said)}."
    for _, row in table[table["law"].notna() & table["gap"].notna()].iterrows():
        ours = f"{row['title']}, M = {row['replicas']:g}, H = {row['period']:g}, {row['rung']}"
        yield f"{ours}: {accuracy.gap_in_words(row)}; the {row['law_says']}, says {row['law']:+.3f}."


LADDER = Table(
    "The ladder",
    str(__doc__),
    build,
    {
        METHOD: "",
        beginning("Gap, "): "",
        "Gap, …": "loss less dense's of the same rung and seed in nats a token, mean and 95 % confidence "
        "interval (none of one seed), and the peak learning rate; of dense its loss. A rung: parameters, tokens a "
        "parameter, steps × tokens in each of all replicas together, and how many replicas share them",
    },
    lambda table: "\n".join(_in_words(table)),
    _by_method,
)
