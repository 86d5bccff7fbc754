"""Loss gaps: against the bytes that are left, the replicas that train, and the part of a method that is left out."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from edgc.report import vega
from edgc.report.figure import Figure
from edgc.report.figures.by_hardware import labels, looks_of
from edgc.report.study import Study, baseline_of, lines, pooled
from edgc.report.style import look
from edgc.report.tables import parts, ranks
from edgc.report.tables.comparisons import REPLICAS
from edgc.report.vega import View
from edgc.report.verdicts import interval_names

HOVER = {"Method": "title", "Payload (bytes)": "payload", "Loss gap (nats)": "gap", "Lowest seed": "gap_low"}
HOVER |= {"Highest seed": "gap_high", "n (seeds)": "n", "Hardware": "device"}
RANGES = interval_names("payload", "gap")
APART = 1.03  #: between neighbours of one degree, so that intervals do not hide each other


def _by_bytes(study: Study) -> Iterator[dict[str, object]]:
    """One row per line but the baseline: payload (bytes of a run) and gap to the baseline (nats), mean, low and high.

    `fixed`: whether its rank is fixed.
    """
    study = pooled(study)
    for line in lines(study.frames.runs):
        own = ranks.by_seed(line, study).dropna(subset=["gap", "payload_bytes"])
        baseline = baseline_of(line, study)
        if own.empty or baseline is None:
            continue
        fixed = line.method in {other.method for other in ranks.fixed_ranks(line, study)}
        row = {**line.identity, "n": len(own), "fixed": fixed, "baseline": baseline.title}
        for name, values in (("payload", own["payload_bytes"]), ("gap", own["gap"])):
            row |= {name: values.mean(), f"{name}_low": values.min(), f"{name}_high": values.max()}
        yield row


def _draw_bytes(data: pd.DataFrame) -> list[View]:
    """One model's points; fixed ranks of the same hardware are joined."""
    x = vega.axis("payload", "gradient bytes handed over in a run, all ranks", log=True, unit="B")
    y = vega.axis("gap", f"loss gap to {data['baseline'].iloc[0]} (nats/token)", zero=True)
    rows = data.assign(label=labels(data, data["device"]))
    looks, fixed = looks_of(rows), rows[rows["fixed"]].sort_values("payload")
    layers = vega.at("y", y, 0)
    if len(fixed):
        layers += vega.joined(fixed, x, y, "device", look(fixed["method"].iloc[0]).colour)
    layers += vega.spread(rows, looks, x, y, "x", "payload_low", "payload_high")
    layers += vega.spread(rows, looks, x, y, "y", "gap_low", "gap_high")
    return [View([*layers, *vega.points(rows, looks, x, y, HOVER, size=70)])]


def _by_replicas(study: Study) -> pd.DataFrame:
    """Rows of table `replicas` that have a gap (nats); `baseline`: its title. None where there is but one degree."""
    table = REPLICAS.build(study)
    if table["replicas"].nunique() < 2:
        return table.head(0)
    of = table["verdict"] == "baseline"
    return table[~of & table["gap"].notna()].assign(baseline=table.loc[of, "title"].max())


def _draw_replicas(data: pd.DataFrame) -> list[View]:
    """One model's lines."""
    methods = list(data.sort_values("replicas")["method"].unique())
    aside = APART ** (data["method"].map(methods.index) - (len(methods) - 1) / 2)
    rows = data.assign(label=data["title"], x=data["replicas"] * aside).sort_values("replicas")
    looks = looks_of(rows)
    x = vega.axis("x", "replicas that share a global batch", log=True, ticks=vega.ticks(data["replicas"]))
    y = vega.axis("gap", f"loss gap to {data['baseline'].iloc[0]} (nats/token)", zero=True)
    hover = {"Method": "title", "Replicas": "replicas", "Loss gap (nats)": "gap", "n (pairs of seeds)": "pairs"}
    layers = [*vega.at("y", y, 0), *vega.spread(rows, looks, x, y, "y", "gap_low", "gap_high")]
    return [View([*layers, *vega.lines(rows, looks, x, y, hover)])]


def _by_part(study: Study) -> Iterator[dict[str, object]]:
    """One row per part left out and seed: gap, its validation loss above the whole method's (nats)."""
    for line in lines(study.frames.runs):
        whole = parts.whole_of(line, study)
        if whole is None or line.method == whole.method or not parts.is_part(line.method, study):
            continue
        for seed, gap in parts.change(line, "loss", study).items():
            yield {**line.identity, "whole": whole.title, "seed": seed, "gap": gap}


def _draw_parts(data: pd.DataFrame) -> list[View]:
    """One model's parts, the first on top."""
    rows = data.assign(label=labels(data, data["device"]))
    looks, y = looks_of(rows), vega.names("label")
    x = vega.axis("gap", f"loss gap to {data['whole'].iloc[0]} (nats/token)", zero=True, padding=12)
    hover = {"Method": "title", "Above the whole (nats)": "gap", "Hardware": "device"}
    means = rows.groupby(["label", "title", "device"], sort=False, as_index=False).agg(gap=("gap", "mean"))
    layers = vega.at("x", x, 0)
    layers += vega.points(rows, looks, x, y, hover | {"Seed": "seed"}, size=22, shape="circle", fill="white")
    layers += vega.points(means, looks, x, y, hover, size=90, shape="diamond")
    return [View(layers, 26 * len(means))]


GAP_BYTES = Figure(
    "Loss gap against payload",
    "What compression costs in loss, against the bytes it leaves: one point per method.",
    {
        "Point": "mean over seeds, with bars from the lowest to the highest",
        "Dotted": "fixed ranks",
        "Read": "lower left is better",
    },
    _by_bytes,
    _draw_bytes,
    ["model", "method", "title", "device", "n", "fixed", "baseline", *RANGES],
)
GAP_REPLICAS = Figure(
    "Loss gap by replicas",
    "What more replicas cost: every method's loss gap against the degree of data parallelism.",
    {
        "Point": "mean over seeds of the loss less that of the baseline with as many replicas, with its 95 % "
        "confidence interval (where seeds were added until decided, one that is valid at any look, and so wider)",
        "Read": "a line that rises: more replicas hurt",
    },
    _by_replicas,
    _draw_replicas,
    ["model", "method", "title", "replicas", "pairs", "gap", "gap_low", "gap_high", "baseline"],
)
PARTS = Figure(
    "Loss without each part",
    "How much loss each part of the paper's method saves: the gap without it, seed by seed.",
    {"Small point": "a seed", "Large point": "mean over seeds", "Read": "right of the line the part helps"},
    _by_part,
    _draw_parts,
    ["model", "method", "title", "device", "whole", "seed", "gap"],
)
