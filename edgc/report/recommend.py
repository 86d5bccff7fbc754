"""Which method to use on a cluster: forecasts beside the nearest loss gaps that are known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from edgc.report.gaps import some
from edgc.report.nearest import Known, nearest
from edgc.report.plan import fastest, number, rounded, stay
from edgc.report.regime import regime_of
from edgc.suite.cluster.forecasts import Forecast, Forecasts, forecast
from edgc.suite.cluster.question import PAGE_METHODS, SITE_METHODS, Question, chosen

WIDTH = 80  #: of a terminal
ASKED = ("model", "cluster", "nodes", "link", "latency_ms", "precision", "sites")  #: of a question
NUMBERS = ("iteration_s", "saving_percent", "low_percent", "high_percent", "break_even_gbit")  #: of a forecast


@dataclass(frozen=True)
class Recommendation:
    """The answer."""

    question: Question
    found: Forecasts
    evidence: Mapping[str, Known]  #: of their loss, by method
    margin: float  #: loss gap that is accepted, in nats

    @property
    def keeps(self) -> Forecast | None:
        """The fastest of the methods that compress and whose nearest controlled loss gap is within the margin."""
        return fastest(self.found, self.evidence, self.margin)

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
            "left_out": [*self.found.left_out],
        }

    def _plain(self, each: Forecast) -> dict[str, Any]:
        always = each.break_even_gbit == math.inf
        plain = {name: getattr(each, name) for name in ("method", "title", "candidate", *NUMBERS)}
        plain |= {"pays_on_every_link": always} | ({"break_even_gbit": None} if always else {})
        return plain | (
            {"verdict": each.verdict} | self.evidence[each.method].plain(self.margin) if each.candidate else {}
        )

    def text(self) -> str:
        """For a terminal."""
        keeps, asked = self.keeps, regime_of(self.found.scenario.spec)
        lines = wrap(self.found.scenario.words, WIDTH)
        rates = self.found.scenario.calibration.source
        lines.append(f"Forecast with {rates} rates. Nothing was measured on such a cluster.")
        lines += wrap(f"Losses that were measured nearest to {asked.words}; margin: {self.margin:g} nats.", WIDTH)
        faster = [each for each in self.found.methods if each.candidate]
        if keeps is None:
            lines.append("No method is known to keep the loss.")
        else:
            faster = [each for each in faster if each.iteration_s < keeps.iteration_s]
            reached = self.evidence[keeps.method].reaches(self.margin)
            far = "No loss was measured at this size and length. Fastest of those that kept it in the nearest one:"
            lines += wrap("Fastest that keeps the loss:" if reached else far, WIDTH)
            lines += self._told(keeps, evidence=True)
            lines += wrap(stay(self.found), WIDTH) if keeps.verdict == "does not pay" else []
        lines += ["Faster:"] if faster and keeps else []
        for each in sorted(faster, key=lambda each: each.iteration_s):
            lines += self._told(each, evidence=bool(self.evidence[each.method].theirs))
        for why in self.found.left_out:
            lines += wrap(f"Left out: {why}.", WIDTH)
        return "\n".join(lines)

    def _told(self, each: Forecast, evidence: bool) -> Iterator[str]:
        saved = f"{rounded(each.low_percent, 1)} to {rounded(each.high_percent, 1)} %"
        link, known = each.break_even_gbit, self.evidence[each.method]
        if link is None:
            faster = "faster on no link"
        else:
            faster = "faster on every link" if math.isinf(link) else f"faster on links below {number(link)} Gbit/s"
        first = f"{each.title}: {each.verdict}; saves {saved} of {self.found.baseline.title}'s time; {faster}"
        yield from wrap(first, WIDTH, initial_indent="  ", subsequent_indent="    ")
        for text in (f"loss: {known.verdict(self.margin)}", *(known.evidence if evidence else ())):
            yield from wrap(text, WIDTH, initial_indent="    ", subsequent_indent="      ")


def recommend(question: Question, margin: float, methods: Sequence[str], published_results: Path) -> Recommendation:
    """Forecast the page's methods (of sites: those for them) or these now, beside the nearest loss gaps."""
    usual = SITE_METHODS if question.sites else PAGE_METHODS
    found = forecast(question.scenario(), chosen(methods or usual), usual=not methods)
    some(published_results)
    evidence = nearest(found.scenario, [each.method for each in found.methods], published_results, margin)
    return Recommendation(question, found, evidence, margin)
