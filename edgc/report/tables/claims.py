"""The paper's headline claims against the cluster model, under each set of assumptions."""

from __future__ import annotations

import pandas as pd

from edgc.report.reference_values import Claim
from edgc.report.render import percent
from edgc.report.study import Study
from edgc.report.table import METHOD, MODEL, Column, Table
from edgc.report.tables.forecast import LATENCY_HEADINGS

REPRODUCED, NOT_REPRODUCED, OUT_OF_REACH = "reproduced", "not reproduced", "out of reach"

MEASURES = {
    "communication_reduction": {heading: f"latency_{kind}_percent" for kind, heading in LATENCY_HEADINGS.items()},
    "training_time_saving": {"training time": "saving_fp32_percent"},
}
LINE = ["model", "assumption", "source", "method", "title"]
COLUMNS = ["claim", "text", "paper", *LINE, "measure", "ours", "bound", "verdict"]
NUMBER = r"\d"  #: what the ranks of a method hold that compresses on some stage


def build(study: Study) -> pd.DataFrame:
    """One row per claim with a number, method that compresses, set of assumptions and definition; percent."""
    forecasts = study.frames.forecasts
    whole = forecasts[(forecasts["sweep"] == "none") & forecasts["amounts"].str.contains(NUMBER)]
    claims = [claim for claim in study.reference.claims if claim.value is not None and claim.measure in MEASURES]
    rows = [row for claim in claims for _, line in whole.iterrows() for row in _rows(claim, line)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _rows(claim: Claim, line: pd.Series) -> list[dict[str, object]]:
    assert claim.value is not None
    assert claim.measure is not None
    bound = float(line["bound_percent"]) if claim.measure == "training_time_saving" else 100.0
    rows = []
    for measure, column in MEASURES[claim.measure].items():
        ours = float(line[column])
        reached = ours >= claim.value - 0.5 * 10**-claim.decimals
        verdict = REPRODUCED if reached else OUT_OF_REACH if bound < claim.value else NOT_REPRODUCED
        own = {"claim": claim.id, "text": claim.text, "paper": claim.value, "measure": measure, "ours": ours}
        rows.append(own | {"bound": bound, "verdict": verdict} | {name: line[name] for name in LINE})
    return rows


def paragraph(table: pd.DataFrame) -> str:
    """Under how many sets of assumptions the variants of the paper's method reach each claim."""
    own = table[table["method"].str.startswith("edgc")]
    texts = []
    for (model, text, paper), rows in own.groupby(["model", "text", "paper"], sort=False):
        bounds = rows.groupby("assumption", sort=False)["bound"].first()
        told = ", ".join(f"{bound:.1f} % ({assumption})" for assumption, bound in bounds.items())
        most = f" What could be saved at most: {told}." if bounds.max() < 100 else ""
        found = "; ".join(_reached(str(title), line) for title, line in rows.groupby("title", sort=False))
        texts.append(f"{text} by {paper:g} % ({model}), in how many of {len(bounds)} assumptions: {found}.{most}")
    return "\n".join(texts)


def _reached(title: str, rows: pd.DataFrame) -> str:
    reached = (rows["verdict"] == REPRODUCED).groupby(rows["measure"], sort=False).sum()
    return f"{title}: " + ", ".join(f"{count} ({measure})" for measure, count in reached.items())


TABLE = Table(
    "The paper's claims, simulated",
    build,
    {
        "All numbers": "from the cluster model: nothing was measured. They compare the whole run with dense in fp32 "
        "without overlap",
        MODEL: "",
        Column("Claim", "text"): "what the paper says",
        Column("Paper", "paper", percent): "the number that it printed",
        Column("Assumptions", "assumption"): "the set of assumptions in the experiment's file",
        METHOD: "",
        Column("Measure", "measure"): "training time, or communication latency under each definition: the paper does "
        "not say which it means",
        Column("Ours", "ours", percent): "what the cluster model says",
        Column("Bound", "bound", percent): "what the method would save if its exchange of gradients took no time. It "
        "is higher for a method that compresses other traffic, too",
        Column("Verdict", "verdict"): f"“{REPRODUCED}”: ours reaches the printed number, or misses it by less than its "
        f"rounding; “{OUT_OF_REACH}”: the claim is above the bound; “{NOT_REPRODUCED}”: neither",
    },
    paragraph,
)
