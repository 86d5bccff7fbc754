"""`edgc bench noise` in words and as a table: which estimate of a loss a gap is best taken from."""

from __future__ import annotations

import pandas as pd

from edgc.report.render import cell

NAMES = {
    "unpaired": "last evaluation, seeds that do not match",
    "last": "mean of the last {} evaluations",
    "batches": "one evaluation of {} batches",
}
CAPTION = {
    "Gap's spread": "standard deviation of the loss gap to the baseline over seeds, nats a token: all methods together "
    "(root of the mean variance), and each",
    "Seconds": "of a run: its training, and the evaluations that the estimate needs",
    "Cost": "of an equally narrow interval, to that of the last evaluation as runs make it: variance times seconds. "
    "What is below 1 is worth it",
}


def pooled(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per estimate: kind, amount, name, sd over all methods, seconds, n, and `cost`, 1 for a run's own."""
    groups = rows.assign(variance=rows["sd"] ** 2).groupby(["kind", "amount"], sort=False)
    found = groups.agg(variance=("variance", "mean"), seconds=("seconds", "mean"), n=("n", "min")).reset_index()
    cost = found["variance"] * found["seconds"]
    usual = cost[(found["kind"] == "last") & (found["amount"] == 1)].iloc[0]
    names = [_name(kind, amount) for kind, amount in zip(found["kind"], found["amount"], strict=True)]
    return found.assign(name=names, sd=found["variance"] ** 0.5, cost=cost / usual).drop(columns="variance")


def _name(kind: str, amount: int) -> str:
    return "last evaluation" if (kind, amount) == ("last", 1) else NAMES[kind].format(amount)


def answers(rows: pd.DataFrame) -> list[str]:
    """What pairing is worth, and the estimate that costs least."""
    table = pooled(rows)
    paired = table[table["kind"] != "unpaired"].sort_values("cost")
    best, worst, seeds = paired.iloc[0], paired.iloc[-1], table["n"].min()
    unpaired = table.loc[table["kind"] == "unpaired", "cost"].iloc[0]
    return [
        f"Without pairs of equal seeds, an equally narrow interval would take {cell(unpaired)} times the runs.",
        f"Of equal seeds, estimates cost {cell(best['cost'])} ({best['name']}) to {cell(worst['cost'])} "
        f"({worst['name']}) times what the last evaluation does as runs make it.",
        f"n = {seeds} seeds: a standard deviation of so few is known to about {100 / (2 * (seeds - 1)) ** 0.5:.0f} %, "
        "the ratio of two from the same runs better.",
    ]


def present(rows: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read; see `CAPTION`."""
    table = pooled(rows)
    shown = pd.DataFrame({"Estimate": table["name"], "Gap's spread": table["sd"].map(_spread)})
    for title, own in rows.groupby("title", sort=False):
        shown[title] = table[["kind", "amount"]].merge(own, how="left")["sd"].map(_spread)
    return shown.assign(Seconds=table["seconds"].map(cell), Cost=table["cost"].map(cell))


def _spread(sd: float) -> str:
    return f"{sd:.4f}"
