"""Which method to use on a cluster: the planner's forecast beside measured loss gaps, in ten lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from edgc.report.site.folders import some
from edgc.report.site.forecasts import METHODS
from edgc.report.site.gaps import published_gaps
from edgc.report.site.question import NUMBERS, Choice, choices, choose, verdict
from edgc.suite.cluster import ask
from edgc.suite.cluster.plan import plan
from edgc.suite.cluster.show import about, number, rounded
from edgc.suite.cluster.trajectory import Parametric
from edgc.suite.config import CONFIGS

WIDTH = 80  #: of a terminal


@dataclass(frozen=True)
class Question:
    """A model on a cluster; None: as the cluster's file or the experiment has it."""

    model: str
    cluster: str
    nodes: int | None = None
    link: str | None = None
    latency_ms: float | None = None
    precision: str | None = None
    sites: int | None = None  #: each a node with whole replicas


@dataclass(frozen=True)
class Recommendation:
    """The answer. `keeps`: the fastest method that is known to keep the loss; `fastest`: of all that compress."""

    question: Question
    about: str
    source: str  #: of the rates
    baseline: str  #: title of the fastest method that compresses nothing
    margin: float
    keeps: Choice | None
    fastest: Choice | None
    methods: tuple[Choice, ...]

    def plain(self) -> dict[str, Any]:
        """For scripts. A link on which a method always pays is null, with `pays_on_every_link` true."""
        return {
            "question": asdict(self.question),
            "about": self.about,
            "source": self.source,
            "baseline": self.baseline,
            "margin_nats": self.margin,
            "keeps_the_loss": self.keeps.method if self.keeps else None,
            "fastest": self.fastest.method if self.fastest else None,
            "methods": [_plain(each, self.margin) for each in self.methods],
        }

    def text(self) -> str:
        """For a terminal."""
        lines = [
            *wrap(self.about, WIDTH),
            f"Forecast with {self.source} rates. Nothing was measured on such a cluster.",
        ]
        if self.keeps is None:
            lines.append(f"No method is known to keep the loss within {self.margin:g} nats.")
        else:
            lines += [f"Fastest that is known to keep the loss within {self.margin:g} nats:", *self._told(self.keeps)]
        if self.fastest is not None and self.fastest != self.keeps:
            lines += ["Fastest of all:", *self._told(self.fastest)]
        return "\n".join([*lines, f"What a method loses on {self.question.model} itself is not known."])

    def _told(self, each: Choice) -> list[str]:
        saved = f"{rounded(each.low_percent, 1)} to {rounded(each.high_percent, 1)} %"
        first = f"{each.title}: {verdict(each)}; saves {saved} of {self.baseline}'s time and {_below(each)}"
        second = f"Loss gap: {each.gap.words if each.gap else 'not known'}"
        return [
            line for text in (first, second) for line in wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
        ]


def recommend(
    question: Question, margin: float, methods: Sequence[str], published_results: Path, configs: Path = CONFIGS
) -> Recommendation:
    """Plan it now, with the page's methods (of sites: those for them) or these, beside the published loss gaps."""
    q = question
    degrees = ask.at_sites(q.sites, q.nodes, {}) if q.sites else {}
    spec = ask.question(q.model, q.cluster, q.link, degrees, configs=configs, nodes=q.sites or q.nodes)
    usual = ask.SITE_METHODS if q.sites else METHODS
    rates = ask.elsewhere(ask.calibration_of(spec.cluster, configs=configs), q.latency_ms)
    precision = q.precision or spec.training.precision
    found = plan(spec, ask.chosen(methods or usual, configs), rates, Parametric(), precision)
    rows = [{name: getattr(each, name) for name in ("method", "candidate", *NUMBERS)} for each in found.forecasts]
    some(published_results)
    gaps = published_gaps(published_results, configs, spec.parallel.data)
    every = choices(rows, gaps, configs)
    keeps, fastest = choose(every, margin)
    told = about(found, spec, precision)
    return Recommendation(
        q, told, rates.source, found.by_name(found.baseline).title, margin, keeps, fastest, tuple(every)
    )


def _below(each: Choice) -> str:
    if each.break_even_gbit is None:
        return "pays on no link"
    if math.isinf(each.break_even_gbit):
        return "pays on every link"
    return f"pays on links below {number(each.break_even_gbit)} Gbit/s"


def _plain(each: Choice, margin: float) -> dict[str, Any]:
    always = each.break_even_gbit is not None and math.isinf(each.break_even_gbit)
    changed = {"break_even_gbit": None if always else each.break_even_gbit, "pays_on_every_link": always}
    judged = {"verdict": verdict(each), "within_margin": each.kept(margin)} if each.candidate else {}
    return asdict(each) | changed | judged
