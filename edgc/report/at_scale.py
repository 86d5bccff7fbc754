"""What others published at scale, and where it stands: configs/reference/at-scale/, one paper or repository a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, StringConstraints

from edgc.core.base.settings import Settings
from edgc.core.settings.reading import CONFIGS, Named, available, load
from edgc.report.regime import Regime

#: Who says it, in words. Third-party notes are somebody else's copy of a paper's numbers.
KINDS = {
    "paper": "paper",
    "authors": "authors",
    "replication": "replication",
    "third_party": "third-party notes",
    "issue": "issue",
}
Kind = Literal["paper", "authors", "replication", "third_party", "issue"]
LossMetric = Literal["evaluation loss", "validation loss", "training loss", "lm loss"]
PerplexityMetric = Literal["validation perplexity", "perplexity"]
UTILISATION = (50, 80, 90, 95, 99)  #: % of compute, for which papers simulate the rate that a link needs
HALF_A_THOUSANDTH = 0.0005 + 1e-9  #: nats between a gap and what it was computed from
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")]


class Published(Settings):
    """What every published number says of itself. null: the source does not say it."""

    method: Name = Field(description="Ours, in configs/methods or configs/variants; else a name of its own")
    family: Name | None = Field(None, description="Our method that it is nearest to, where it is not the same")
    words: Text = Field(description="What the source calls it")
    settings: str = Field("", description="What else matters of how it was run")
    parameters: PositiveInt = Field(description="Of the model, as the source names its size")
    width: PositiveInt | None = Field(None, description="Of the residual stream")
    batch: PositiveInt | None = Field(None, description="Tokens in a step of all replicas together")
    replicas: PositiveInt | None = Field(None, description="Data-parallel replicas")
    period: PositiveInt | None = Field(None, description="H: steps from one exchange to the next")
    rank: PositiveInt | None = Field(None, description="Of a low-rank exchange")
    bits: PositiveFloat | None = Field(None, description="Of an element that is sent")
    ratio: PositiveFloat | None = Field(None, le=1, description="Share of the elements that is sent")
    where: Text = Field(description="Where it stands: table, section or file")
    note: str = Field("", description="What a reader has to know")


class PublishedGap(Published):
    """A loss gap to a baseline (nats), with the two numbers that it was computed from."""

    tokens: PositiveInt | None = Field(None, description="That were trained on")
    steps: PositiveInt | None = Field(None, description="Optimizer steps")
    baseline: Text = Field("dense", description="What the gap is to")
    dense: PositiveFloat | None = Field(None, description="The baseline's loss or perplexity")
    value: PositiveFloat | None = Field(None, description="The method's")
    percent: float | None = Field(None, gt=-100, description="In their place: by how much perplexity is higher")
    decimals: int = Field(ge=0, le=9, description="Printed decimals of those numbers; the fewer, if they differ")
    gap: float = Field(description="Method less baseline (nats)")
    controlled: bool = Field(True, description="Whether the baseline saw the same tokens and was tuned as well")

    @property
    def regime(self) -> Regime:
        """What it was measured on, as far as the source says it."""
        steps = self.steps or (self.tokens and self.batch and round(self.tokens / self.batch))
        share = self.rank and self.width and self.rank / self.width
        tokens = self.tokens and self.tokens / self.parameters
        return Regime(self.parameters, tokens, steps, self.batch, self.replicas, self.period, share)

    def computed(self, perplexity: bool) -> tuple[float, float]:
        """The gap by the printed numbers, and how far their rounding lets it be off (nats)."""
        half = 0.5 * 10.0**-self.decimals
        if self.percent is not None and self.dense is self.value is None:
            return math.log1p(self.percent / 100), half / (100 + self.percent)
        if self.dense is None or self.value is None or self.percent is not None:
            raise ValueError(f"gap {self.gap:g} of {self.words}: give dense and value, or else percent")
        if perplexity:
            return math.log(self.value / self.dense), half / self.value + half / self.dense
        return self.value - self.dense, 2 * half


class Speed(Published):
    """A time or a rate that was measured, beside that of dense in the same place."""

    quantity: Text = Field(description="What took or had it: step, exchange, …")
    unit: Literal["s", "ms", "min", "h", "days", "1/s", "%", "steps", "times"] = Field(description="Of value and dense")
    value: float = Field(description="The method's")
    dense: float | None = Field(None, description="The baseline's")
    hardware: str = Field("", description="Devices, where the file's setting does not say them")
    link_gbit: PositiveFloat | None = Field(None, description="Rate of the link in Gbit/s")
    link: str = Field("", description="What the rate alone does not say of it")
    simulated: bool = Field(False, description="By the authors' simulator, not measured")


class Bandwidth(Published):
    """Rates that a simulator says a link needs, for the shares of compute in UTILISATION."""

    step_s: PositiveFloat | None = Field(None, description="Compute of a step (s)")
    gbit_s: tuple[PositiveFloat | None, ...] = Field(
        min_length=len(UTILISATION), max_length=len(UTILISATION), description="Gbit/s; null: more than 1000"
    )


class ScalingLaw(Settings):
    """factor · N^size · M^many, for N parameters and M replicas, as its authors fitted it."""

    method: Name = Field(description="As in a gap")
    predicts: Literal["loss", "batch"] = Field(description="Nats, or tokens of the best batch")
    replicas: PositiveInt | None = Field(None, description="The M that it is for; null: any, or there are none")
    factor: PositiveFloat = Field(description="Its constant")
    size: float = Field(description="Exponent of N")
    many: float = Field(0.0, description="Exponent of M")
    period: PositiveInt | None = Field(None, description="The H that it is for")
    tokens_a_parameter: PositiveFloat | None = Field(None, description="Of what was trained")
    smallest: PositiveInt = Field(description="Least parameters of what was trained; below it is extrapolation")
    largest: PositiveInt = Field(description="Most parameters of what was trained")
    where: Text = Field(description="Where it stands")

    def at(self, parameters: float, replicas: int = 1) -> float:
        """What it predicts."""
        return self.factor * parameters**self.size * replicas**self.many


class AtScale(Named):
    """A paper's or repository's numbers (configs/reference/at-scale/)."""

    folder: ClassVar[str] = "reference/at-scale"

    name: str = Field(description="Name of the file")
    title: Text = Field(description="What it is")
    source: Text = Field(description="arXiv id with version, or repository @commit and date")
    kind: Kind = Field(description="Who says it")
    metric: LossMetric | PerplexityMetric | None = Field(None, description="What gaps are gaps in")
    setting: Text = Field(description="What all its numbers have in common, in words")
    gaps: tuple[PublishedGap, ...] = Field((), description="Loss gaps")
    speeds: tuple[Speed, ...] = Field((), description="Times and rates")
    bandwidths: tuple[Bandwidth, ...] = Field((), description="Simulated rates for a utilisation")
    laws: tuple[ScalingLaw, ...] = Field((), description="Laws that its authors fitted")

    @property
    def perplexity(self) -> bool:
        """Whether gaps are computed from perplexities, else from losses."""
        return bool(self.metric) and str(self.metric).endswith("perplexity")

    @property
    def losses(self) -> list[ScalingLaw]:
        """Laws of the loss, each of one number of replicas."""
        return [law for law in self.laws if law.predicts == "loss" and not law.many]

    @property
    def dense(self) -> ScalingLaw | None:
        """That of a training without replicas, to which gaps by laws are gaps."""
        return next((law for law in self.losses if law.method == "dense"), None)

    def refusals(self) -> Iterator[str]:
        if not (self.gaps or self.speeds or self.bandwidths or self.laws):
            yield "holds no number: give gaps, speeds, bandwidths or laws"
        if self.gaps and self.metric is None:
            yield "gaps need a metric: say what they are gaps in"
        for each in self.gaps:
            known, _ = each.computed(self.perplexity)
            if abs(known - each.gap) > HALF_A_THOUSANDTH:
                yield f"gap {each.gap:g} of {each.words}, {each.where}: its numbers say {known:.4f}"


def at_scale(configs: Path = CONFIGS) -> list[AtScale]:
    """Every file in `configs/reference/at-scale`, by name. Raises `UserError` if one is not valid."""
    return [load(AtScale, name, configs) for name in available(AtScale, configs)]
