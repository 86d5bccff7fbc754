"""Which method to use on a cluster: forecasts beside measured loss gaps, in ten lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from edgc.report.gaps import Gap, published_gaps, some
from edgc.report.plan import fastest, number, rounded
from edgc.suite.cluster.forecasts import Forecast, Forecasts, forecast
from edgc.suite.cluster.question import PAGE_METHODS, SITE_METHODS, Question, chosen
from edgc.suite.config import CONFIGS

WIDTH = 80  #: of a terminal
ASKED = ("model", "cluster", "nodes", "link", "latency_ms", "precision", "sites")  #: of a question
NUMBERS = ("iteration_s", "saving_percent", "low_percent", "high_percent", "break_even_gbit")  #: of a forecast


@dataclass(frozen=True)
class Recommendation:
    """The answer."""

    question: Question
    found: Forecasts
    gaps: Mapping[str, Gap]
    margin: float  #: loss gap that is accepted, in nats

    @property
    def keeps(self) -> Forecast | None:
        """The fastest of the methods that compress and are known to keep the loss within the margin."""
        return fastest(self.found, self.gaps, lambda gap: gap.within(self.margin))

    def plain(self) -> dict[str, Any]:
        """For scripts. A link on which a method always pays is null, with `pays_on_every_link` true."""
        best = self.found.candidate
        return {
            "question": {name: getattr(self.question, name) for name in ASKED},
            "about": self.found.scenario.words,
            "source": self.found.scenario.calibration.source,
            "baseline": self.found.baseline.title,
            "margin_nats": self.margin,
            "keeps_the_loss": self.keeps.method if self.keeps else None,
            "fastest": best.method if best else None,
            "methods": [self._plain(each) for each in self.found.methods],
        }

    def _plain(self, each: Forecast) -> dict[str, Any]:
        gap, always = self.gaps.get(each.method), each.break_even_gbit == math.inf
        kept = "not known" if gap is None else "yes" if gap.within(self.margin) else "no"
        plain = {name: getattr(each, name) for name in ("method", "title", "candidate", *NUMBERS)}
        plain |= {"gap": gap and asdict(gap), "pays_on_every_link": always}
        plain |= {"break_even_gbit": None} if always else {}
        return plain | ({"verdict": each.verdict, "within_margin": kept} if each.candidate else {})

    def text(self) -> str:
        """For a terminal."""
        keeps, best = self.keeps, self.found.candidate
        lines = wrap(self.found.scenario.words, WIDTH)
        rates = self.found.scenario.calibration.source
        lines.append(f"Forecast with {rates} rates. Nothing was measured on such a cluster.")
        if keeps is None:
            lines.append(f"No method is known to keep the loss within {self.margin:g} nats.")
        else:
            known = f"Fastest that is known to keep the loss within {self.margin:g} nats:"
            lines += [known, *self._told(keeps)]
        if best is not None and best != keeps:
            lines += ["Fastest of all:", *self._told(best)]
        return "\n".join([*lines, f"What a method loses on {self.question.model} itself is not known."])

    def _told(self, each: Forecast) -> Iterator[str]:
        saved = f"{rounded(each.low_percent, 1)} to {rounded(each.high_percent, 1)} %"
        gap, link = self.gaps.get(each.method), each.break_even_gbit
        if link is None:
            pays = "pays on no link"
        else:
            pays = "pays on every link" if math.isinf(link) else f"pays on links below {number(link)} Gbit/s"
        first = f"{each.title}: {each.verdict}; saves {saved} of {self.found.baseline.title}'s time and {pays}"
        for text in (first, f"Loss gap: {gap.words if gap else 'not known'}"):
            yield from wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def recommend(
    question: Question, margin: float, methods: Sequence[str], published_results: Path, configs: Path = CONFIGS
) -> Recommendation:
    """Forecast the page's methods (of sites: those for them) or these now, beside the published loss gaps."""
    usual = SITE_METHODS if question.sites else PAGE_METHODS
    found = forecast(question.scenario(configs), chosen(methods or usual, configs))
    some(published_results)
    gaps = published_gaps(published_results, configs, found.scenario.spec.parallel.data)
    return Recommendation(question, found, gaps, margin)
