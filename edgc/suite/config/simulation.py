"""What the cluster model is to assume: `mode: simulate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from edgc.core.base.settings import Settings
from edgc.suite.config.rate import Rate

Precision = Literal["fp32", "tf32", "fp16", "bf16"]


class Assumption(Settings):
    """One set of assumptions under which claims are judged."""

    title: str = Field(description="As printed")
    precision: Precision | None = Field(None, description="Of compute; null: the training's")
    link: Rate | None = Field(None, description="Rate of a node's link, e.g. 200gbit; null: the cluster's")
    calibration: str | None = Field(None, description="File in configs/calibrations; null: of the cluster's devices")
    latency_ms: NonNegativeFloat | None = Field(
        None, description="Of a message between nodes, one way; null: the calibration's"
    )
    stage_speeds: tuple[PositiveFloat, ...] = Field(
        (), description="Speed of each pipeline stage's devices against the calibration's; empty: all 1"
    )


class Simulation(Settings):
    """Sets of assumptions, and what is swept under each of them."""

    assumptions: tuple[Assumption, ...] = Field(min_length=1, description="Sets of assumptions, by their titles")
    links: tuple[Rate, ...] = Field((), description="Rates of a node's link at which every method is predicted, too")
    ranks: tuple[PositiveInt, ...] = Field((), description="Ranks of PowerSGD that are predicted, too")
    latencies_ms: tuple[NonNegativeFloat, ...] = Field(
        (), description="Latencies of a message between nodes; every method is predicted at each of `links` with each"
    )
    local_steps: tuple[PositiveInt, ...] = Field(
        (),
        description="Steps between two exchanges of methods that train locally meanwhile (DiLoCo, arXiv 2311.08105), "
        "predicted beside the others at every latency",
    )

    def refusals(self) -> Iterator[str]:
        titles = [assumption.title for assumption in self.assumptions]
        if len(set(titles)) != len(titles):
            yield f"assumptions {titles} name one twice"
        for given, needed in (("latencies_ms", "links"), ("local_steps", "latencies_ms")):
            if getattr(self, given) and not getattr(self, needed):
                yield f"{given}: predicted at each of `{needed}`, which is empty; set that, too"
