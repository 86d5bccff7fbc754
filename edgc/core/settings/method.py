"""What a method is: synchronisation × aggregator × policy × placement, and pipeline traffic. configs/methods/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat

from edgc.core.aggregators import AGGREGATORS, CONTROLS
from edgc.core.aggregators.aggregator import Aggregator, Role
from edgc.core.base.settings import Settings, younger
from edgc.core.exchange.link_codecs import PipelineTraffic
from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import IN_WORDS, On
from edgc.core.policies.by_kind import Kind, scaled
from edgc.core.settings import outside
from edgc.core.settings.reading import Named
from edgc.core.synchronisation import SYNCHRONISATIONS
from edgc.core.synchronisation.every_step import EveryStepSettings
from edgc.core.synchronisation.synchronisation import Moment

outside.register()  # before unions are made of all settings
MECHANISMS = AGGREGATORS | CONTROLS
if TYPE_CHECKING:
    AggregatorUnion = PolicyUnion = SynchronisationUnion = Any  # only pydantic knows which of the settings it is
else:

    def _union(of: Mapping[str, Any]) -> Any:
        return Annotated[reduce(or_, (each.Settings for each in of.values())), Field(discriminator="name")]

    AggregatorUnion, PolicyUnion, SynchronisationUnion = map(_union, (MECHANISMS, POLICIES, SYNCHRONISATIONS))
EVERY_STEP = EveryStepSettings(name="every_step")


class Placement(Settings):
    """Which gradients a method may compress, and how much by kind; all others travel dense."""

    stages: tuple[NonNegativeInt, ...] | None = Field(
        None, min_length=1, description="Pipeline stages that compress, from 0; null: all"
    )
    exclude: tuple[str, ...] = Field(
        (),
        description="Substrings of parameter names that always travel dense; the last stage's copy of "
        "embedding.word_embeddings is output_layer",
    )
    scale: dict[Kind, PositiveFloat] = younger(
        {},
        description="By kind of parameter: its rank, ratio or bits as a multiple of what the policy decides, e.g. "
        "{expert: 0.5, attention: 2}. What travels dense stays so",
    )


class Method(Named):
    """synchronisation × aggregator × policy × placement (configs/methods/)."""

    folder: ClassVar[str] = "methods"

    title: str = Field(description="As printed in tables and figures")
    source: str = Field(description="Paper or code that defines it")
    summary: str = Field(description="What it does, in a sentence")
    aggregator: AggregatorUnion = Field(description="How a gradient crosses the network")
    policy: PolicyUnion = Field(description="How much and when to compress")
    synchronisation: SynchronisationUnion = Field(
        EVERY_STEP, description="What is exchanged, and when, relative to the optimizer"
    )
    placement: Placement = Field(Placement(), description="Which gradients may be compressed")  # type: ignore[call-arg]
    optimizer: Literal["adamw", "muon"] | None = younger(
        None,
        description="The training.optimizer that it is made for, and trained with; null: any",
    )
    overlap: bool = Field(False, description="Start a bucket's exchange while backward still runs")
    pipeline: PipelineTraffic = Field(
        PipelineTraffic(),  # type: ignore[call-arg]
        description="How the traffic between pipeline stages is compressed",
    )
    fused_embedding: bool = Field(
        False,
        description="Average the tied embedding's gradient over data-parallel ranks and sum its two stages' copies in "
        "one uncompressed all-reduce, in the place of two exchanges (Optimus-CC)",
    )

    @property
    def control(self) -> bool:
        """Whether it is there to be timed only: nothing can be trained with it."""
        return self.aggregator.name in CONTROLS

    @property
    def floor(self) -> bool:
        """Whether nothing is exchanged at all: what is left of a step's time."""
        return MECHANISMS[self.aggregator.name].role == "floor"

    @property
    def block(self) -> int:
        """Elements that share a scale, where the aggregator has few bits."""
        return getattr(self.aggregator, "block", 128)

    @property
    def adapts(self) -> bool:
        """Whether how much it sends, or when, depends on what it observes: nobody knows it beforehand."""
        return self.policy.adapts or self.synchronisation.paced

    @property
    def baseline(self) -> bool:
        """Whether it averages everything in every step, uncompressed: others are held against it."""
        return MECHANISMS[self.aggregator.name].role == "dense" and self.synchronisation == EVERY_STEP

    @property
    def role(self) -> Role:
        """What it is to others that it is timed with."""
        return "floor" if self.floor else "dense" if self.baseline else "other"

    @property
    def in_every_step(self) -> bool:
        """Whether every step ends in an exchange whose average that step uses."""
        when = self.synchronisation
        late = when.late or when.moment is Moment.NEXT_STEP
        return not (self.floor or late or when.paced or when.period > 1)

    def refusals(self) -> Iterator[str]:
        """Which parts do not fit together, and why."""
        yield from self._policy_refused()
        yield from self._synchronisation_refused()
        yield from self._seconds_refused()
        yield from self._scale_refused()
        yield from self._parts_refused()

    def _policy_refused(self) -> Iterator[str]:
        wants = MECHANISMS[self.aggregator.name].amount
        gives = self.policy.decides
        if wants is not gives:
            yield (
                f"aggregator {self.aggregator.name} needs a policy that decides {IN_WORDS[wants]}, "
                f"but policy {self.policy.name} decides {IN_WORDS[gives]}"
            )
        for amount in self.policy.amounts:
            if why := self.aggregator.refuses(amount):
                yield why
        if self.policy.reads_errors and not self.aggregator.tells_errors:
            yield (
                f"policy {self.policy.name} decides by what each amount would lose, which aggregator "
                f"{self.aggregator.name} with these settings does not tell; lowrank, few_bits, and topk with "
                "values: fp32 do"
            )
        if self.policy.reads_spectrum:
            telling = [name for name, kind in AGGREGATORS.items() if kind.spectrum is not Aggregator.spectrum]
            if self.aggregator.name not in telling or not self.aggregator.keeps_residual:
                yield (
                    f"policy {self.policy.name} reads the spectrum of what was sent and the error that is left: "
                    f"it needs aggregator {' or '.join(telling)} with error_feedback: true"
                )
            if getattr(self.aggregator, "min_compression_ratio", 1.0) > 1:
                yield (
                    f"aggregator.min_compression_ratio {self.aggregator.min_compression_ratio:g}: policy "  # type: ignore[attr-defined]
                    f"{self.policy.name} never sees again what that leaves dense; use 1"
                )
        if self.policy.aligned and 0 not in (self.placement.stages or (0,)):
            yield (
                f"policy {self.policy.name} aligns all stages with the first one, "
                f"but placement.stages {list(self.placement.stages or ())} does not compress it; set alignment: false"
            )

    def _scale_refused(self) -> Iterator[str]:
        policy, scale = self.policy, self.placement.scale
        if scale and policy.decides is On:
            yield f"placement.scale {scale}: policy {policy.name} decides nothing that could be scaled; leave it out"
        if scale and (policy.reads_errors or policy.reads_spectrum or policy.reads_seconds or policy.needs_costs):
            instead = "give max_rank, and alignment: false" if policy.needs_costs else "use another policy"
            yield (
                f"placement.scale {scale}: policy {policy.name} decides by what its own amounts lose or take, and "
                f"these would be others; leave it out, or {instead}"
            )
        for kind, by in scale.items():
            for amount in policy.amounts:
                if why := self.aggregator.refuses(scaled(amount, by)):
                    yield f"placement.scale.{kind} {by:g}: {why}"

    def _synchronisation_refused(self) -> Iterator[str]:
        chosen = self.synchronisation
        during_backward = chosen.moment is Moment.BACKWARD
        for setting, wrong, why in (
            ("aggregator", self.control, "is a control: timed as it is, or not at all"),
            ("overlap: true", self.overlap, "starts exchanges during backward"),
            ("fused_embedding: true", self.fused_embedding, "sums the tied embedding's gradient in the same step"),
            ("policy.alignment: true", self.policy.aligned, "aligns exchanges with the ends of stages' backward"),
        ):
            if wrong and not during_backward:
                yield (
                    f"synchronisation {chosen.name} exchanges at another time, but {setting} {why}; leave it out, "
                    "or use synchronisation: {name: every_step}"
                )

    def _seconds_refused(self) -> Iterator[str]:
        policy, chosen = self.policy, self.synchronisation
        late = chosen.moment is Moment.NEXT_STEP or chosen.late > 0
        hidden = {"overlap: true": self.overlap, f"synchronisation {chosen.name}": late}
        for how, hides in hidden.items():
            if policy.reads_seconds and hides:
                yield (
                    f"policy {policy.name} times what steps wait for, but {how} hides a part of it; use overlap: "
                    "false and an exchange within the step, or another policy"
                )

    def _parts_refused(self) -> Iterator[str]:
        chosen = self.synchronisation
        if chosen == EVERY_STEP:
            return
        if self.control:
            yield (
                f"aggregator {self.aggregator.name} is a control, timed as it is: it has no synchronisation "
                f"{chosen.name}; use synchronisation: {{name: every_step}}"
            )
        if why := chosen.refuses(self.aggregator, self.policy):
            yield f"synchronisation {chosen.name} {why}"
