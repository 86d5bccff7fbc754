"""What the cluster model predicts of step times and links that others published, beside their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from edgc.core.base import files
from edgc.report import render
from edgc.report.at_scale import KINDS, UTILISATION, AtScale, Bandwidth, Speed
from edgc.report.regime import count
from edgc.report.render import cell, percent
from edgc.report.speed_questions import AskedSetup, SpeedQuestions, answer
from edgc.report.study import Study, reduction_percent
from edgc.report.table import Column, Table
from edgc.report.tables.predicted import RIGHT_SIGN, right_sign
from edgc.suite.cluster.forecasts import UTILISATIONS
from edgc.suite.config import CONFIGS, available, load
from edgc.suite.config.provenance import code_base

FOLDER = "others-predicted"  #: under the published results
NEAR = 20.0  #: percent; a larger error is looked into (docs/planner.md)
SECONDS = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "days": 86400.0}


def build(study: Study | None = None, configs: Path = CONFIGS) -> pd.DataFrame:
    """One row per published number that is asked for: predicted, measured, error (percent), savings (percent)."""
    asked = [
        (load(SpeedQuestions, name, configs), load(AtScale, name, configs))
        for name in available(SpeedQuestions, configs)
    ]
    rows = []
    for questions, file in asked:
        for number in (*file.speeds, *file.bandwidths):
            if found := questions.setup(number):
                setup, assumed = found
                told = _speed(number, setup, configs) if isinstance(number, Speed) else _links(number, setup, configs)
                known = {"assumed": "; ".join(filter(None, [assumed, number.note]))}
                rows += [_identity(file, number) | row | known for row in told]
    table = pd.DataFrame(rows)
    table["error_percent"] = 100 * (table["predicted"] / table["measured"] - 1)
    table["right_sign"] = right_sign(table["saved_percent"], table["predicted_saved_percent"])
    return table


def _identity(file: AtScale, number: Speed | Bandwidth) -> dict[str, Any]:
    what = {"source": file.title, "kind": KINDS[file.kind], "place": f"{file.source}, {number.where}"}
    link, gbit = (number.link, number.link_gbit) if isinstance(number, Speed) else ("", None)
    link = ", ".join(filter(None, [link, f"{gbit:g} Gbit/s" if gbit else ""]))
    names = ("words", "parameters", "period", "settings", "replicas", "batch")
    return what | {name: getattr(number, name) for name in names} | {"link": link}


def _speed(number: Speed, setup: AskedSetup, configs: Path) -> Iterator[dict[str, Any]]:
    """The step itself, or where that is not what was published, its ratio to the baseline's."""
    scale, rate = SECONDS.get(number.unit, 1.0), number.unit == "1/s"
    dense = setup.baseline_s or scale * (number.dense or math.nan)
    found, own, baseline = answer(setup, dense, configs)
    step, other = (found.by_name(method.name).iteration_s for method in (own, baseline))
    if number.unit == "times":
        predicted, saved = other / step, 100 * (1 - 1 / number.value)
    else:
        measured_s = 1 / number.value if rate else scale * number.value
        steps = number.quantity in ("step", "rounds")
        seconds = step if steps else dense * step / other
        predicted, saved = 1 / seconds if rate else seconds / scale, reduction_percent(measured_s, dense)
    yield {
        "quantity": number.quantity,
        "unit": number.unit,
        "predicted": predicted,
        "measured": number.value,
        "saved_percent": saved,
        "predicted_saved_percent": reduction_percent(step, other) if own.name != baseline.name else math.nan,
    }


def _links(number: Bandwidth, setup: AskedSetup, configs: Path) -> Iterator[dict[str, Any]]:
    """Each utilisation that a plan says, too."""
    found, own, _baseline = answer(setup, configs=configs)
    needs = found.by_name(own.name).needs_gbit
    for share, gbit in zip(UTILISATION, number.gbit_s, strict=True):
        if share in UTILISATIONS and gbit:
            told = {"quantity": f"link to be {share} % busy", "unit": "Gbit/s", "predicted": needs[share]}
            yield told | {"measured": gbit, "saved_percent": math.nan, "predicted_saved_percent": math.nan}


def write(published: Path, configs: Path = CONFIGS) -> Path:
    """Write `<published>/others-predicted/tables/others_predicted.*` and which code made them. Returns the CSV."""
    folder, made = published / FOLDER, code_base()  # of what is there when it begins
    numbers, own = build(configs=configs).round(6), OTHERS_PREDICTED
    note = "Published numbers: configs/reference/at-scale; questions: configs/predictions. Nothing was measured here."
    name, out = "others_predicted", folder / "tables"
    render.write(out, name, own.title, numbers, own.present(numbers), own.captions(), note, own.words(numbers))
    files.write_json(folder / "manifest.json", made)
    return out / f"{name}.csv"


def paragraph(table: pd.DataFrame) -> str:
    """How far off the model is, by source and method."""
    lines = []
    for (source, words, unit), own in table.assign(link=table["unit"] == "Gbit/s").groupby(
        ["source", "words", "link"], sort=False
    ):
        error, judged = own["error_percent"].abs(), own["right_sign"].dropna()
        sign = f"; whether it saves was right in {int(judged.sum())} of {len(judged)}" if len(judged) else ""
        lines.append(
            f"{source}, {words}, {'simulated links' if unit else 'times'}: {int((error <= NEAR).sum())} of {len(own)} "
            f"within {NEAR:g} %, off by {percent(error.median())} (median) and {percent(error.max())} (most){sign}."
        )
    return "\n".join(lines)


def _what(row: pd.Series) -> str:
    period = "" if pd.isna(row["period"]) else f"H = {row['period']:g}"
    replicas = "" if pd.isna(row["replicas"]) else f"{row['replicas']:g} replicas"
    batch = "" if pd.isna(row["batch"]) else f"{row['batch']:g} tokens a step"
    told = [count(row["parameters"]), period, replicas, batch, row["settings"], row["link"]]
    return ", ".join(text for text in told if isinstance(text, str) and text)


OTHERS_PREDICTED = Table(
    "Speeds of others, predicted",
    str(__doc__),
    build,
    {
        Column("Source", "source"): "by the title of its file in configs/reference/at-scale",
        Column("Method", "words"): "as the source calls it",
        Column("Of", _what): "model, and how it was trained, as far as the source says",
        Column("What", "quantity"): "a link to be so busy is the rate that leaves this share of a step to compute; "
        "sources print rates that are a factor of 1.2 apart",
        Column("Unit", "unit"): "times: speed-up against the baseline; 1/s: rounds a second",
        Column("Predicted", "predicted", cell): "by the model behind `edgc plan`",
        Column("Published", "measured", cell): "by the source: measured, or for links simulated by its authors",
        Column("Error", "error_percent", percent): "how much more is predicted than was published",
        Column("Predicted saving", "predicted_saved_percent", percent): "of a step, against the baseline's",
        Column("Measured saving", "saved_percent", percent): "the same of the published numbers",
        **RIGHT_SIGN,
        Column("Assumed", "assumed"): "what the source does not say. Compute that is the baseline's step without its "
        "predicted exchange makes the baseline exact: then only the other step is predicted",
        Column("Kind", "kind"): "who published it",
        Column("Place", "place"): "where it stands",
    },
    paragraph,
)
