"""Of a method, the loss gaps that stand nearest to what is planned: ours, and those that others published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgc.report.at_scale import KINDS, AtScale, PublishedGap, at_scale
from edgc.report.gaps import Gap, least_favourable, published_measured, signed
from edgc.report.regime import Regime, count, regime_of
from edgc.suite.cluster.question import Scenario, of_method
from edgc.suite.config import CONFIGS, Method, available, load

JUDGED = {"paper", "authors", "replication"}  #: kinds of evidence by which a margin is judged
LAW = 0.25  #: doublings by which a number of a law is farther than one that was measured
MOST = 2  #: sources of others that are shown


@dataclass(frozen=True)
class Cited:
    """A loss gap (nats) that somebody else published, or that a law of theirs gives between sizes that they trained."""

    gap: float
    low: float  #: the least and the most that its printed digits allow
    high: float
    regime: Regime
    source: str  #: who says it, and where
    controlled: bool  #: whether its baseline was as well tuned on as many tokens, and it is no third party's note
    other: str = ""  #: the method that it is of, if that is one near to the method asked about
    law: str = ""  #: what it is by, if it is not measured

    @property
    def judged(self) -> bool:
        """Whether a margin is judged by it."""
        return self.controlled and not self.other

    @property
    def words(self) -> str:
        """As it is read."""
        of = ", ".join(filter(None, (self.other, self.law, self.regime.words)))
        return f"{of}: {signed(self.gap, 3)} ({self.source})"


@dataclass(frozen=True)
class Known:
    """What is known of a method's loss gap near what is planned."""

    regime: Regime  #: what is planned
    ours: Gap | None
    theirs: tuple[Cited, ...] = ()  #: the nearest first, one a source

    def judge(self, margin: float) -> Gap | Cited | None:
        """The nearest controlled number; ours only if nobody has another, where its interval does not decide."""
        controlled = [*([self.ours] if self.ours else []), *(each for each in self.theirs if each.judged)]

        def far(each: Gap | Cited) -> tuple[bool, float]:
            return each is self.ours and each.low <= margin < each.high, _distance(self.regime, each)

        return min(controlled, key=far, default=None)

    def reaches(self, margin: float) -> bool:
        """Whether that speaks for what is planned."""
        judge = self.judge(margin)
        return judge is not None and not self.regime.beyond(judge.regime)

    def kept(self, margin: float) -> str:
        """Whether that is below a margin (nats), with its interval or printed digits: yes, no, open, or not known."""
        judge = self.judge(margin)
        if judge is None:
            return "not known"
        return "yes" if judge.high <= margin else "no" if judge.low > margin else "open"

    def verdict(self, margin: float) -> str:
        """In words, with the regime that it rests on, and where it is not known."""
        if (judge := self.judge(margin)) is None:
            return f"not known: {'none of the numbers is controlled' if self.theirs else 'nobody published it'}"
        said = {
            "yes": "keeps the loss",
            "no": f"loses more than {margin:g} nats",
            "open": f"is not decided against {margin:g} nats",
        }
        beyond = self.regime.beyond(judge.regime)
        at = judge.regime.said(dict.fromkeys(["parameters", *beyond])) or "an unknown size"
        by = f" by a {judge.law}" if isinstance(judge, Cited) and judge.law else ""
        unknown = f"; not known at {self.regime.said(beyond)}" if beyond else ""
        return f"{said[self.kept(margin)]} at {at}{by}{unknown}"

    @property
    def evidence(self) -> list[str]:
        """The numbers, ours first: a line each."""
        ours = [f"ours: {self.ours.words}"] if self.ours else []
        return [*ours, *(f"published{'' if each.judged else ', not judged by'}: {each.words}" for each in self.theirs)]

    def plain(self, margin: float) -> dict[str, Any]:
        """For scripts."""
        return {
            "loss_gap": self.ours and asdict(self.ours),
            "published": [asdict(each) | {"judged": each.judged, "words": each.words} for each in self.theirs],
            "within_margin": self.kept(margin),
            "reaches": self.reaches(margin),
            "loss_verdict": self.verdict(margin),
        }


def nearest(
    scenario: Scenario, methods: Iterable[str], published: Path, margin: float, configs: Path = CONFIGS
) -> dict[str, Known]:
    """By method: the numbers nearest to what is planned. Raises `UserError` if a file of others' numbers is not valid.

    `published`: the folder of our published results. `margin`: of ours, those that decide it (nats) go before others.
    """
    loaded = {name: load(Method, name, configs) for name in methods}
    asked = {name: regime_of(of_method(scenario.spec, method)) for name, method in loaded.items()}
    found = ((gap, not gap.low <= margin < gap.high) for gap, _ in published_measured(published, configs))
    ours, others = least_favourable(found, configs, asked), at_scale(configs)
    return {
        name: Known(asked[name], ours.get(name), published_by_others(method, asked[name], others, configs))
        for name, method in loaded.items()
    }


def published_by_others(
    method: Method, regime: Regime, files: Sequence[AtScale], configs: Path = CONFIGS
) -> tuple[Cited, ...]:
    """The nearest number of each source, the nearest sources first; of other methods only if no source has its own."""
    names = {gap.method for file in files for gap in file.gaps}.intersection(available(Method, configs))
    alike = _alike(method, names, configs)
    theirs = [each for file in files if (each := _of(file, method, alike, regime))]
    found = sorted(theirs, key=lambda each: _distance(regime, each))
    return tuple([each for each in found if not each.other][:MOST] or found[:1])


def _alike(method: Method, names: Iterable[str], configs: Path) -> set[str]:
    """Those of the names whose replicas step alone exactly as the method's do: it differs in what is sent."""
    if method.in_every_step:
        return set()
    return {name for name in names if load(Method, name, configs).synchronisation == method.synchronisation}


def _of(file: AtScale, method: Method, alike: set[str], regime: Regime) -> Cited | None:
    """A source's nearest number of a method, or else of one near to it; controlled ones first."""
    name = method.name.removesuffix("_overlap")
    near = [each for each in file.gaps if name in (each.method, each.family) or each.method in alike]
    found = [*(_cited(each, file, name) for each in near), *by_laws(file, name, regime)]
    return min(
        found, key=lambda each: (bool(each.other), not each.controlled, _distance(regime, each)), default=None
    )  # fmt: skip


def _cited(gap: PublishedGap, file: AtScale, name: str) -> Cited:
    _, rounding = gap.computed(file.perplexity)
    to = "" if gap.baseline == "dense" else f"; to {gap.baseline}"
    return Cited(
        gap.gap, gap.gap - rounding, gap.gap + rounding, gap.regime,
        f"{KINDS[file.kind]}: {file.source}, {gap.where}{to}", gap.controlled and file.kind in JUDGED,
        other="" if gap.method == name else gap.words,
    )  # fmt: skip


def by_laws(file: AtScale, name: str, regime: Regime) -> Iterator[Cited]:
    """What a source's law of as many replicas says; outside the sizes that it covers nothing is judged by it."""
    if (dense := file.dense) is None or regime.parameters is None:
        return
    own = (law for law in file.losses if law is not dense and law.method == name and law.replicas == regime.replicas)
    for law in own:
        size, edge = regime.parameters, min(max(regime.parameters, law.smallest), law.largest)
        gap = law.at(size) - dense.at(size)
        words = f"law of {count(law.smallest)} to {count(law.largest)} parameters"
        words = f"law, carried from {count(edge)} to {count(size)} parameters" if edge != size else words
        on = Regime(edge, law.tokens_a_parameter, replicas=law.replicas, period=law.period)
        source = f"{KINDS[file.kind]}: {file.source}, {law.where}"
        yield Cited(gap, gap, gap, on, source, edge == size and file.kind in JUDGED, law=words)


def _distance(regime: Regime, each: Gap | Cited) -> float:
    return regime.distance(each.regime) + (LAW if isinstance(each, Cited) and each.law else 0)
