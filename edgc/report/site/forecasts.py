"""Forecasts over a grid of models, clusters and links, computed beforehand for the page's question form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.lazy import pd
from edgc.core.base.provenance import code_base
from edgc.suite.cluster import ask
from edgc.suite.cluster.plan import Plan, plan
from edgc.suite.cluster.trajectory import Parametric
from edgc.suite.config import CONFIGS, Method, load

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
METHODS = (
    "dense", "dense_bf16", "dense_bf16_overlap", "powersgd", "edgc", "edgc_measured", "topk", "int8", "int4", "onebit",
    "diloco",
)  # fmt: skip
POINT = ("model", "cluster", "nodes", "link", "latency_ms", "precision")  #: columns that say what was asked
FILE = Path("site") / "forecasts.csv"  #: under the published results


@dataclass(frozen=True)
class Point:
    """One question."""

    model: str
    cluster: str
    nodes: int
    link: str
    latency_ms: float | None
    precision: str

    @property
    def command(self) -> str:
        """The `edgc plan` that answers it anew."""
        far = "" if self.latency_ms is None else f" --latency {self.latency_ms:g}"
        own = f"--model {self.model} --cluster {self.cluster} --nodes {self.nodes} --link {self.link}{far}"
        return f"edgc plan {own} --precision {self.precision}"


def grid() -> Iterator[Point]:
    """Every question that is answered beforehand."""
    for model in MODELS:
        for cluster, precisions in CLUSTERS.items():
            for nodes in NODES:
                for link, latencies in LINKS.items():
                    for latency in latencies:
                        yield from (Point(model, cluster, nodes, link, latency, each) for each in precisions)


def write(published: Path, points: Iterable[Point] | None = None, configs: Path = CONFIGS) -> Path:
    """Write `<published>/site/forecasts.csv`, and beside it which code made it. Returns the file."""
    path = published / FILE
    files.write_json(path.with_name("manifest.json"), code_base())  # first: of what is there when it begins
    rows = [row for point in points or grid() for row in answer(point, configs)]
    files.write_text(path, pd.DataFrame(rows).to_csv(index=False, float_format="%.4g"))
    return path


def answer(point: Point, configs: Path = CONFIGS) -> list[dict[str, Any]]:
    """A row a method; one row with a note where the model does not fit or does not divide so."""
    asked = {column: getattr(point, column) for column in POINT}
    try:
        found, source, layout = ask_plan(point, METHODS, configs)
    except UserError as error:
        return [asked | {"note": str(error).splitlines()[-1].split("; ")[0].strip()}]
    return [
        asked
        | {"layout": layout, "source": source, "method": each.method, "candidate": each.candidate}
        | {"iteration_s": each.iteration_s, "saving_percent": each.saving_percent}
        | {"low_percent": each.low_percent, "high_percent": each.high_percent}
        | {"break_even_gbit": each.break_even_gbit, "note": None}
        for each in found.forecasts
    ]


def ask_plan(point: Point, methods: Iterable[str], configs: Path = CONFIGS) -> tuple[Plan, str, str]:
    """The plan of a question, the source of its rates, and its layout in words."""
    spec = ask.question(point.model, point.cluster, point.link, configs=configs, nodes=point.nodes)
    rates = ask.elsewhere(ask.calibration_of(spec.cluster, configs=configs), point.latency_ms)
    chosen = [load(Method, name, configs) for name in methods]
    p = spec.parallel
    layout = f"tensor {p.tensor} × pipeline {p.pipeline} × data {p.data}"
    return plan(spec, chosen, rates, Parametric(), point.precision), rates.source, layout
