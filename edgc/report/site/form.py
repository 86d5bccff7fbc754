"""The page's question form: forecasts over a grid of models, clusters and links, beside the nearest loss gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.lazy import pd
from edgc.report.nearest import Known, nearest
from edgc.report.recommend import NUMBERS
from edgc.report.timed_steps import spoken
from edgc.suite.cluster.forecasts import CLEAR, forecast
from edgc.suite.cluster.question import PAGE_METHODS, Question
from edgc.suite.config import Cluster, Method, load
from edgc.suite.config.provenance import code_base
from edgc.suite.config.rate import bits_per_second

MODELS = ("gpt2-345m", "gpt2-1.3b", "gpt2-2.5b", "gpt2-12.1b")
#: Clusters in configs/clusters, each with the precisions that its devices compute in.
CLUSTERS = {"v100x32": ("fp32", "fp16"), "internet-a100x32": ("tf32", "bf16"), "h100x64": ("tf32", "bf16")}
NODES = (8, 16)
#: Links of a node, each with the latencies (ms, one way) that go with it; None: those inside a data centre.
LINKS: dict[str, tuple[float | None, ...]] = {
    "200mbit": (None, 20),
    "1gbit": (None, 20),
    "10gbit": (None, 20),
    "25gbit": (None,),
    "100gbit": (None,),
    "400gbit": (None,),
}
POINT = ("model", "cluster", "nodes", "link", "latency_ms", "precision")  #: columns that say what was asked
FILE = Path("site") / "forecasts.csv"  #: under the published results
MARGINS = (0.005, 0.01, 0.02, 0.05, 0.1)  #: acceptable loss gaps (nats) to choose from


def grid() -> Iterator[Question]:
    """Every question that is answered beforehand."""
    for model, (cluster, precisions), nodes, (link, latencies) in product(
        MODELS, CLUSTERS.items(), NODES, LINKS.items()
    ):
        for latency, precision in product(latencies, precisions):
            yield Question(model, cluster, nodes, link, latency, precision)


def write(published: Path, questions: Iterable[Question] | None = None) -> Path:
    """Write `<published>/site/forecasts.csv`, and beside it which code made it. Returns the file."""
    path = published / FILE
    made = code_base()  # of what is there when it begins
    rows = [row for question in questions or grid() for row in _answer(question)]
    files.write_text(path, pd.DataFrame(rows).to_csv(index=False, float_format="%.4g"))
    files.write_json(path.with_name("manifest.json"), made)
    return path


def _answer(question: Question) -> list[dict[str, Any]]:
    """A row a method; one row with a note where the model does not fit or does not divide so."""
    asked = {column: getattr(question, column) for column in POINT}
    try:
        found = forecast(question.scenario(), [load(Method, name) for name in PAGE_METHODS], usual=True)
    except UserError as error:
        return [asked | {"note": str(error).splitlines()[-1].split("; ")[0].strip()}]
    p = found.scenario.spec.parallel
    asked |= {"layout": f"tensor {p.tensor} × pipeline {p.pipeline} × data {p.data}"}
    asked |= {"source": found.scenario.calibration.source}
    columns = ("method", "candidate", *NUMBERS)
    return [asked | {name: getattr(each, name) for name in columns} | {"note": None} for each in found.methods]


def form(published: Path) -> dict[str, Any] | None:
    """What the form needs: its lists, every answer, and what is known of losses. None if no forecasts are published."""
    path = published / FILE
    if not path.is_file():
        return None
    table = pd.read_csv(path)
    methods = list(table["method"].dropna().unique())
    latencies = sorted(table["latency_ms"].unique(), key=lambda ms: -1.0 if pd.isna(ms) else float(ms))
    return {
        "file": path.name,
        "lists": {
            "model": [(name, name) for name in table["model"].unique()],
            "cluster": [(name, _device(name)) for name in table["cluster"].unique()],
            "nodes": [(str(n), str(n)) for n in sorted(table["nodes"].unique())],
            "link": [(name, spoken(name)) for name in sorted(table["link"].unique(), key=bits_per_second)],
            "latency_ms": [(_plain(ms), _far(ms)) for ms in latencies],
            "precision": [(name, name) for name in sorted(table["precision"].unique())],
        },
        "margins": MARGINS,
        "data": {
            "clear": CLEAR,
            "methods": methods,
            "titles": {name: load(Method, name).title for name in methods},
            "known": _known(table, methods, published),
            "points": _points(table, methods),
        },
    }


def _known(table: pd.DataFrame, methods: Sequence[str], published: Path) -> dict[str, Any]:
    """By model, cluster and nodes, for every method: the evidence, and what it says of each of the `MARGINS`."""
    answered = table[table["note"].isna()][["model", "cluster", "nodes"]].drop_duplicates()
    found = {}
    for model, cluster, nodes in answered.itertuples(index=False):
        scenario = Question(model, cluster, int(nodes)).scenario()
        known = {margin: nearest(scenario, methods, published, margin) for margin in MARGINS}
        found[f"{model}|{cluster}|{nodes}"] = [_said({m: of[name] for m, of in known.items()}) for name in methods]
    return found


def _said(known: Mapping[float, Known]) -> dict[str, Any]:
    """By margin; the evidence is all that any of them is judged by."""
    return {
        "evidence": [*dict.fromkeys(line for each in known.values() for line in each.evidence)],
        "kept": [each.kept(margin) for margin, each in known.items()],
        "near": [each.reaches(margin) for margin, each in known.items()],
        "verdict": [each.verdict(margin) for margin, each in known.items()],
    }


def _points(table: pd.DataFrame, methods: Sequence[str]) -> dict[str, Any]:
    """By question: layout, source of the rates, command, and by method its numbers; or why there is no answer."""
    found: dict[str, Any] = {}
    table = table.assign(latency_ms=table["latency_ms"].map(_plain))
    for (model, cluster, nodes, link, latency, precision), answers in groupby(
        table.to_dict("records"), lambda row: [str(row[name]) for name in POINT]
    ):
        rows = list(answers)
        key = "|".join([model, cluster, nodes, link, latency, precision])
        far = f" --latency {latency}" if latency else ""
        command = f"edgc plan --model {model} --cluster {cluster} --nodes {nodes} --link {link}{far}"
        command = f"{command} --precision {precision}"
        if pd.isna(rows[0]["method"]):
            found[key] = {"note": rows[0]["note"], "command": command}
            continue
        numbers = {row["method"]: [_short(row[name]) for name in NUMBERS] for row in rows}
        found[key] = {
            "layout": rows[0]["layout"],
            "source": rows[0]["source"],
            "command": command,
            "candidates": [methods.index(row["method"]) for row in rows if row["candidate"]],
            "rows": [numbers.get(name) for name in methods],
        }
    return found


def _short(value: float) -> float | str | None:
    """None: nothing; "inf": on every link."""
    return None if pd.isna(value) else "inf" if np.isinf(value) else float(f"{value:.4g}")


def _plain(ms: float) -> str:
    return "" if pd.isna(ms) else f"{ms:g}"


def _far(ms: float) -> str:
    return "inside a data centre" if pd.isna(ms) else f"{ms:g} ms one way"


def _device(cluster: str) -> str:
    found = load(Cluster, cluster)
    return f"{found.processes_per_node} × {found.device_model} a node"
