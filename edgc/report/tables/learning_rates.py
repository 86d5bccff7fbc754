"""Every method's loss at several learning rates, and whether the best lies inside the grid."""

from __future__ import annotations

import pandas as pd

from edgc.report.collect import NOT_RUN
from edgc.report.render import NOTHING, with_deviation
from edgc.report.study import Line, Study, lines, pooled
from edgc.report.table import HARDWARE, METHOD, MODEL, Column, Table, beginning

COLUMNS = ["model", "method", "title", "device", "lr", "status", "seeds", "loss", "loss_sd", "best", "edge"]


def build(study: Study) -> pd.DataFrame:
    """One row per method (its name without `_lr<rate>`) and learning rate: seeds, loss (nats), loss_sd, best, edge.

    `edge`, of the best: lowest, highest, only, or none of them.
    """
    if not study.experiment.learning_rates:
        return pd.DataFrame(columns=COLUMNS)
    rows = [_row(line) for line in lines(pooled(study).frames.runs)]
    table = pd.DataFrame(rows, columns=COLUMNS).assign(best=False, edge=None)
    for _, own in table.groupby(["model", "method", "device"], dropna=False):
        finished = own.loc[own["status"] == "done", "loss"].dropna()
        if len(finished):
            best = own.index == finished.idxmin()
            table.loc[own.index[best], "best"] = True
            found = edge(float(own["lr"][best].iloc[0]), own.loc[own["status"] != NOT_RUN, "lr"])
            table.loc[own.index[best], "edge"] = found
    return table


def _row(line: Line) -> dict[str, object]:
    lr = float(line.runs["spec.training.lr"].iloc[0])
    losses = line.done["validation_loss"].dropna()
    row = {"model": line.model, "device": line.device, "status": line.status, "lr": lr}
    row |= {"method": line.method.removesuffix(f"_lr{lr:g}"), "title": line.title.removesuffix(f", lr {lr:g}")}
    return row | {"seeds": len(losses), "loss": losses.mean(), "loss_sd": losses.std()}


def edge(best: float, grid: pd.Series) -> str | None:
    """Where the best rate stands at an end of the grid: lowest, highest, or only; None inside."""
    if grid.nunique() == 1:
        return "only"
    return "lowest" if best == grid.min() else "highest" if best == grid.max() else None


def paragraph(table: pd.DataFrame) -> str:
    """How many methods are best inside the grid; each one's best rate, and whether a better one may lie outside."""
    if table.empty:
        return "The experiment has no learning rates."
    several = table["model"].nunique() > 1 or table["device"].nunique() > 1
    texts = []
    for (model, title, device), own in table.groupby(["model", "title", "device"], sort=False, dropna=False):
        name = f"{title} ({model}, {device})" if several else str(title)
        best = own[own["best"]]
        if best.empty:
            texts.append(f"{name} has no best rate: at none did every run finish.")
            continue
        row = best.iloc[0]
        if pd.isna(row["edge"]):  # None, or NaN where the table was read from a CSV file
            where = "inside the grid"
        elif row["edge"] == "only":
            where = "the only rate that was run"
        else:
            where = f"the {row['edge']} rate that was run, so a better one may lie outside"
        texts.append(f"{name} is best at {row['lr']:g} ({row['loss']:.4f} nats, n = {row['seeds']}), {where}.")
    if len(texts) > 1:
        inside = table.loc[table["best"], "edge"].isna().sum()
        texts.insert(0, f"{inside} of {len(texts)} methods are best inside the grid.")
    return "\n".join(texts)


def _by_method(table: pd.DataFrame) -> pd.DataFrame:
    """One line per method: the row of its best rate, and by rate the losses."""
    rows = []
    for _, own in table.groupby(["model", "title", "device"], sort=False, dropna=False):
        best = own[own["best"]]
        row = {name: own[name].iloc[0] for name in ("model", "title", "device")}
        for _, rate in own.sort_values("lr").iterrows():
            done = rate["status"] == "done"
            row[f"lr {rate['lr']:g}"] = with_deviation(rate, "loss") if done else str(rate["status"])
        at = NOTHING if best.empty else best["edge"].iloc[0]
        rows.append(row | {"best": NOTHING if best.empty else f"{best['lr'].iloc[0]:g}", "edge": at})
    return pd.DataFrame(rows)


LEARNING_RATES = Table(
    "Learning rates",
    str(__doc__),
    build,
    {
        MODEL: "",
        METHOD: "",
        HARDWARE: "",
        beginning("lr "): "",
        "lr …": "final validation loss in nats a token at this peak learning rate: mean ± standard deviation over "
        "seeds. Where a run did not finish: how the runs ended",
        Column("Best", "best"): "the rate with the lowest mean, of those at which every run finished",
        Column("At an edge", "edge", lambda edge: "no" if pd.isna(edge) else edge): "the best is the lowest or the "
        "highest rate that was run, so a better one may lie outside. A rate at which runs ended badly counts as run",
    },
    paragraph,
    _by_method,
)
