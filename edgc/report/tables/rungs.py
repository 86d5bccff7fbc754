"""Loss gaps at every rung: sizes, tokens a parameter, steps and replicas; each with its learning rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from edgc.report.at_scale import AtScale, at_scale
from edgc.report.gaps import signed
from edgc.report.nearest import by_laws
from edgc.report.regime import Regime, count
from edgc.report.render import loss
from edgc.report.study import Study
from edgc.report.table import METHOD, Table, beginning
from edgc.report.tables import accuracy
from edgc.report.verdicts import difference, interval

OF_RUNG = ["parameters", "tokens_a_parameter", "steps", "batch", "shared_by"]
COLUMNS = ["rung", "model", "method", "title", *OF_RUNG, "replicas", "period", "lr", "status", "seeds", "loss"]
COLUMNS += ["loss_sd", "pairs", "gap", "gap_low", "gap_high", "verdict"]
LAW = ["law", "law_says", "law_low", "law_high", "law_of_gaps"]
COLUMNS += LAW


def build(study: Study) -> pd.DataFrame:
    """Tables `accuracy` of this experiment's methods here and in `judgement.rungs_from`, with regime and rate.

    `shared_by`: replicas that share a global batch; `law`: the gap (nats) that a published law gives, at `replicas`
    and `period`, `law_says` whose it is, `law_low` to `law_high` its 95 % interval, and `law_of_gaps` what another form
    of law says (see `_sure`). The smallest models first, then the fewest steps.
    """
    own = accuracy.build(study)
    rows = [(own if table is None else table).merge(regimes, on=["model", "method"]) for table, regimes in study.rungs]
    table = pd.concat([pd.DataFrame(columns=COLUMNS), *rows], ignore_index=True)
    table = table[table["method"].isin(own["method"])]
    table["title"] = table["method"].map(own.drop_duplicates("method").set_index("method")["title"])
    table["rung"] = [_rung(row) for _, row in table.iterrows()]
    files = at_scale(study.configs)
    laws = [_law(row, files) for _, row in table.iterrows()]
    table[LAW] = pd.DataFrame(laws, table.index, LAW)
    return table.sort_values([*OF_RUNG], kind="stable").reindex(columns=COLUMNS).reset_index(drop=True)


def _rung(row: pd.Series) -> str:
    tokens = f"{row['tokens_a_parameter']:.2g}"
    many = f", {row['shared_by']} replicas" if row["shared_by"] != 1 else ", 1 replica"
    return f"{count(row['parameters'])}, {tokens} tokens a parameter, {row['steps']} × {row['batch']}{many}"


def _law(row: pd.Series, files: list[AtScale]) -> tuple[float, str | None, float, float, float]:
    """What a law says of a method of local steps, of as many replicas, the same period, and about as many tokens."""
    regime = Regime(row["parameters"], replicas=row["replicas"])
    for paper in files:
        for law in by_laws(paper, row["method"], regime):
            trained = law.regime.tokens_a_parameter
            if law.regime.period == row["period"] and trained and 0.5 <= row["tokens_a_parameter"] / trained <= 2:
                return law.gap, f"{law.law} ({law.source})", *_sure(row, paper)
    return np.nan, None, np.nan, np.nan, np.nan


def _sure(row: pd.Series, paper: AtScale) -> tuple[float, float, float]:
    """How sure a law of a paper's is there: the ends of its 95 % interval, and what a law of another form says.

    The interval is the jackknife's over the sizes whose losses are printed: log of loss is linear in log N, dense's and
    the method's, as the authors have it. The other form has log of the gap linear in log N. nan of fewer than four
    sizes, and of gaps that are not all above 0.
    """
    wanted = row["method"], row["replicas"], row["period"]
    printed = [
        gap for gap in paper.gaps if (gap.method, gap.replicas, gap.period) == wanted and gap.dense and gap.value
    ]
    if len(printed) < 4:
        return np.nan, np.nan, np.nan
    logs = np.log([[gap.parameters, gap.dense, gap.value] for gap in printed])

    def carried(logs: np.ndarray) -> np.ndarray:
        slopes, starts = np.polyfit(logs[:, 0], logs[:, 1:], 1)
        return np.exp(starts + slopes * np.log(row["parameters"]))

    def gap(logs: np.ndarray) -> float:
        return float(np.diff(carried(logs))[0])

    n = len(logs)
    _, low, high = interval(pd.Series([n * gap(logs) - (n - 1) * gap(np.delete(logs, i, 0)) for i in range(n)]))
    gaps = np.diff(np.exp(logs[:, 1:]))
    other = float(carried(np.hstack([logs[:, :1], np.log(gaps)]))[0]) if (gaps > 0).all() else np.nan
    return low, high, other


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
    lawful = table[table["law"].notna() & table["gap"].notna()]
    for _, row in lawful.iterrows():
        ours = f"{row['title']}, M = {row['replicas']:g}, H = {row['period']:g}, {row['rung']}"
        said = f"the {row['law_says']}, says {signed(row['law'], 3)}"
        if pd.notna(row["law_low"]):
            said += f" (our refit of its printed losses: {signed(row['law_low'], 3)} to {signed(row['law_high'], 3)})"
        if pd.notna(row["law_of_gaps"]):
            said += f", and a power law through its paper's gaps themselves {signed(row['law_of_gaps'], 3)}"
        yield f"{ours}: {accuracy.gap_in_words(row)}; {said}."
    one, several = lawful[lawful["replicas"] == 1], lawful[lawful["replicas"] > 1]
    for _, row in several.merge(one, on=["model", "method", "steps", "batch"], suffixes=("", "_one")).iterrows():
        adds = accuracy.interval(*difference(row.filter(regex="_one$").rename(lambda key: key[:-4]), row))
        says = signed(row["law"] - row["law_one"], 3)
        yield f"{row['title']}, {row['rung']}: {adds} more than with one replica; by the law {says}."


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
        "In words": "a refit is a jackknife over the sizes that a law's paper prints: its 95 % interval holds only if "
        "the law's form does. Of two gaps' difference the interval is Welch's",
    },
    lambda table: "\n".join(_in_words(table)),
    _by_method,
)
