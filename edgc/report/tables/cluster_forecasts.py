"""What the cluster model says: of every method, of the paper's claims, and of the links that devices need."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd

from edgc.report.plan import LATENCIES, by_stage
from edgc.report.reference_values import Claim
from edgc.report.render import cell, number, percent
from edgc.report.study import Study
from edgc.report.table import METHOD, MODEL, Column, Table
from edgc.suite.cluster.forecasts import UTILISATIONS
from edgc.suite.config import Experiment

ASSUMPTIONS = {Column("Assumptions", "assumption"): "the set of assumptions in the experiment's file"}
SIMULATED = {"All numbers": "from the cluster model: nothing was measured", MODEL: "", **ASSUMPTIONS, METHOD: ""}


def _forecasts(study: Study) -> pd.DataFrame:
    """Rows of the frame `forecasts` that belong to no sweep."""
    every = study.frames.forecasts
    return every[every["sweep"] == "none"].drop(columns="sweep").reset_index(drop=True)


def _verdicts(table: pd.DataFrame) -> str:
    """The verdict under each set of assumptions."""
    said = table.drop_duplicates(["model", "assumption"])
    return "\n".join(
        f"{row['model']}, {row['assumption']}: {row['sentence']} ({row['source']})." for _, row in said.iterrows()
    )


def _amounts(text: str) -> str:
    """Ranks or ratios by stage; one where all are the same."""
    return by_stage(json.loads(text))


def _off(row: pd.Series) -> str:
    return f"{number(row['low_percent'], '.1f')} to {percent(row['high_percent'])}"


def _latency(kind: str) -> Column:
    """Seconds, and how much less than dense fp32's."""

    def seconds(row: pd.Series) -> str:
        less = row[f"latency_{kind}_percent"]
        return cell(row[f"latency_{kind}_s"]) + (f" ({number(-less, '+.1f')} %)" if less else "")

    return Column(f"Latency: {LATENCIES[kind]}", seconds, unit="s")


def _gather(name: str, key: str) -> Column:
    return Column(name, key, cell, "s", when=lambda table: key in table)


def _sharded(text: str) -> Callable[[Experiment | None], str]:
    """A caption that only a sharded training has."""
    return lambda experiment: text if experiment and experiment.training.shard != "none" else ""


FORECAST = Table(
    "Training time and communication latency, simulated",
    "What the cluster model says of every method: time, latency, and whether it pays, under each set of assumptions.",
    _forecasts,
    {
        **SIMULATED,
        Column("Rank by stage", "amounts", _amounts): "mean rank, ratio or bits of each pipeline stage once the policy "
        "has settled; one where all agree",
        Column("Step", "iteration_s", cell, "s"): "mean over the run, with the policy's warm-up",
        Column("Saved", "saving_percent", percent): "of the run's time, against the fastest method that compresses "
        "nothing",
        Column("± 20 %", _off): "lowest and highest "
        "saving when the links' efficiency and the rates of the model's and of the exchange's arithmetic are each "
        "20 % higher or lower",
        Column("Of fp32", "saving_fp32_percent", percent): "saved against dense in fp32 without overlap",
        Column("Pays below", "break_even_gbit", cell, "Gbit/s"): "the link on which the method takes as long as the "
        "fastest that compresses nothing; it pays on slower ones",
        Column("Days", "days", cell): "of the whole run",
        Column("GPU-hours", "gpu_hours", "{:.0f}".format): "of the whole run, all GPUs",
        _gather("Gather", "gather_s"): "",
        _gather("Gather, exposed", "gather_exposed_s"): "",
        "Latency: …": "communication of a step under each definition in use: mean over the run, and how much less than "
        "dense fp32's",
        _latency("wire"): "the gradients' messages",
        _latency("exchange"): "these and the exchange's own arithmetic",
        _latency("exposed"): "by how much the step would be shorter without the exchange of gradients",
        _latency("everything"): lambda experiment: (
            "wire, the tied embedding's exchange, tensor and pipeline "
            f"parallelism{_sharded(', gathers of parameters')(experiment)}"
        ),
        "Gather": _sharded(
            "parameters come back from their owners in a step, once the policy has settled: seconds on the link, and "
            "of rounding them"
        ),
        "Gather, exposed": _sharded("by how much the step would be shorter without that"),
    },
    _verdicts,
)


REPRODUCED, NOT_REPRODUCED, OUT_OF_REACH = "reproduced", "not reproduced", "out of reach"

MEASURES = {
    "communication_reduction": {heading: f"latency_{kind}_percent" for kind, heading in LATENCIES.items()},
    "training_time_saving": {"training time": "saving_fp32_percent"},
}
LINE = ["model", "assumption", "source", "method", "title"]
COLUMNS = ["claim", "text", "paper", *LINE, "measure", "ours", "bound", "verdict"]
NUMBER = r"\d"  #: what the ranks of a method hold that compresses on some stage


def _claimed(study: Study) -> pd.DataFrame:
    """One row per claim with a number, method that compresses, set of assumptions and definition; percent."""
    whole = _forecasts(study)
    whole = whole[whole["amounts"].str.contains(NUMBER)]
    claims = [claim for claim in study.reference.claims if claim.value is not None and claim.measure in MEASURES]
    rows = [row for claim in claims for _, line in whole.iterrows() for row in _of_claim(claim, line)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _of_claim(claim: Claim, line: pd.Series) -> list[dict[str, object]]:
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


def _claims_in_words(table: pd.DataFrame) -> str:
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


CLAIMS = Table(
    "The paper's claims, simulated",
    "The paper's headline claims against the cluster model, under each set of assumptions.",
    _claimed,
    {
        "All numbers": "from the cluster model: nothing was measured. They compare the whole run with dense in fp32 "
        "without overlap",
        MODEL: "",
        Column("Claim", "text"): "what the paper says",
        Column("Paper", "paper", percent): "the number that it printed",
        **ASSUMPTIONS,
        METHOD: "",
        Column("Measure", "measure"): "training time, or communication latency under each definition: the paper does "
        "not say which it means",
        Column("Ours", "ours", percent): "what the cluster model says",
        Column("Bound", "bound", percent): "what the method would save if its exchange of gradients took no time. It "
        "is higher for a method that compresses other traffic, too",
        Column("Verdict", "verdict"): f"“{REPRODUCED}”: ours reaches the printed number, or misses it by less than its "
        f"rounding; “{OUT_OF_REACH}”: the claim is above the bound; “{NOT_REPRODUCED}”: neither",
    },
    _claims_in_words,
)


def _needed(study: Study) -> pd.DataFrame:
    """The same rows: utilisation now, tokens a second, links needed."""
    needs = [f"needs_gbit_{share}" for share in UTILISATIONS]
    columns = ["model", "assumption", "method", "title", "link_gbit", "utilisation_percent", "tokens_per_s", *needs]
    return _forecasts(study)[columns]


def _least_needed(table: pd.DataFrame) -> str:
    """Under each set of assumptions, the method that needs least for the middle share, and dense beside it."""
    share = UTILISATIONS[1]
    needs, said = f"needs_gbit_{share}", []
    for (model, assumption), rows in table.groupby(["model", "assumption"], sort=False):
        least = rows.sort_values(needs).iloc[0]
        others = [f", {row['title']} {cell(row[needs])}" for _, row in rows[rows["method"] == "dense"].iterrows()]
        told = f"{least['title']} needs {cell(least[needs])} Gbit/s a node{''.join(others)}"
        said.append(f"{model}, {assumption}: for {share} % utilisation {told}.")
    return "\n".join(said)


BANDWIDTH = Table(
    "Bandwidth for a given utilisation",
    "How fast links must be for devices that compute most of the time, by the cluster model.",
    _needed,
    {
        **SIMULATED,
        Column("Utilisation", "utilisation_percent", percent): "share of a step, mean over the run, that a step "
        "without any exchange of gradients takes on links of any rate; steps between two exchanges count in the mean",
        Column("Tokens/s", "tokens_per_s", cell): "of the whole cluster, mean over the run",
        **{Column(f"Gbit/s for {share} %", f"needs_gbit_{share}", cell): "" for share in UTILISATIONS},
        "Gbit/s for … %": "the link of a node from which on the utilisation is that high; 0: on every link; inf: on "
        "none, as the exchange's own arithmetic or the links' latency takes too long",
    },
    _least_needed,
)
