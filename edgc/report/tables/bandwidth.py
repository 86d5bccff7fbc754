"""How fast links must be for devices that compute most of the time, by the cluster model."""

from __future__ import annotations

import pandas as pd

from edgc.report.render import cell, percent
from edgc.report.study import Study
from edgc.report.table import FORECAST, Column, Table
from edgc.suite.cluster.forecasts import UTILISATIONS


def build(study: Study) -> pd.DataFrame:
    """Rows of the frame `forecasts` that belong to no sweep: utilisation now, tokens a second, links needed."""
    forecasts = study.frames.forecasts
    needs = [f"needs_gbit_{share}" for share in UTILISATIONS]
    columns = ["model", "assumption", "method", "title", "link_gbit", "utilisation_percent", "tokens_per_s", *needs]
    return forecasts.loc[forecasts["sweep"] == "none", columns].reset_index(drop=True)


def paragraph(table: pd.DataFrame) -> str:
    """Under each set of assumptions, the method that needs least for the middle share, and dense beside it."""
    share = UTILISATIONS[1]
    needs, said = f"needs_gbit_{share}", []
    for (model, assumption), rows in table.groupby(["model", "assumption"], sort=False):
        least = rows.sort_values(needs).iloc[0]
        others = [f", {row['title']} {cell(row[needs])}" for _, row in rows[rows["method"] == "dense"].iterrows()]
        told = f"{least['title']} needs {cell(least[needs])} Gbit/s a node{''.join(others)}"
        said.append(f"{model}, {assumption}: for {share} % utilisation {told}.")
    return "\n".join(said)


TABLE = Table(
    "Bandwidth for a given utilisation",
    build,
    {
        **FORECAST,
        Column("Utilisation", "utilisation_percent", percent): "share of a step, mean over the run, that a step "
        "without any exchange of gradients takes on links of any rate; steps between two exchanges count in the mean",
        Column("Tokens/s", "tokens_per_s", cell): "of the whole cluster, mean over the run",
        **{Column(f"Gbit/s for {share} %", f"needs_gbit_{share}", cell): "" for share in UTILISATIONS},
        "Gbit/s for … %": "the link of a node from which on the utilisation is that high; 0: on every link; inf: on "
        "none, as the exchange's own arithmetic or the links' latency takes too long",
    },
    paragraph,
)
