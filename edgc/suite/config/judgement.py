"""How an experiment's differences in quality are judged, and where a timing takes them from."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat

from edgc.core.base.settings import Settings


class Judgement(Settings):
    """How a difference in quality is judged."""

    margin_nats: NonNegativeFloat = Field(
        0.02, description="A validation-loss gap to the baseline up to this counts as preserved"
    )
    baseline: str = Field("dense", description="Method that the others are compared with")
    gaps_from: tuple[str, ...] = Field(
        (),
        description="For modes time and simulate: experiments whose published tables `accuracy` tell loss gaps; of a "
        "method and model that stand in several the first counts",
    )
    gaps_of: dict[str, str] = Field(
        {},
        description="Methods whose gap is another's there, as a test says that both are equal: "
        "{powersgd: powersgd_r32}. What runs in layout zero1 has that of fsdp2",
    )
    replicas_from: tuple[str, ...] = Field(
        (),
        description="For table `replicas`: experiments that train the same with other degrees of data parallelism; "
        "their published tables `accuracy` are read",
    )
    controls: dict[str, str] = Field(
        {},
        description="For tables `adaptation` and `credit`: methods, each with the one that it is held against, as it "
        "does not adapt to the links or lacks another part, and is otherwise the same: {powersgd_budget: powersgd}",
    )
