"""What machines do in a second: rates that the cluster model computes with. configs/calibrations/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from edgc.core.base.settings import Settings
from edgc.core.settings.reading import Named


class Stages(Settings):
    """Measured seconds of one model's pipeline stages, in the place of what rates and operations would say."""

    model: str = Field(description="Model, by its name in configs/models")
    tensor: PositiveInt = Field(1, description="Tensor-parallel degree it was measured at")
    micro_batch: PositiveInt = Field(description="Sequences in a micro-batch")
    precision: str = Field("fp32", description="Precision of compute")
    forward_s: tuple[PositiveFloat, ...] = Field(min_length=1, description="A micro-batch's forward, by stage")
    backward_s: tuple[PositiveFloat, ...] = Field(min_length=1, description="A micro-batch's backward, by stage")
    optimizer_s: tuple[PositiveFloat, ...] = Field(
        min_length=1, description="What follows the exchange in a step: norm, update, bookkeeping; by stage"
    )

    def refusals(self) -> Iterator[str]:
        if not len(self.forward_s) == len(self.backward_s) == len(self.optimizer_s):
            yield "forward_s, backward_s and optimizer_s must have a number for each stage"


class Calibration(Named):
    """Rates of a device and of its links (configs/calibrations/). `edgc calibrate` writes one."""

    folder: ClassVar[str] = "calibrations"

    source: Literal["assumed", "calibrated"] = Field(
        description="assumed: from data sheets and experience; calibrated: measured on the machine itself"
    )
    origin: str = Field(description="Where the numbers are from")
    device_model: str = Field(description="What the device is, as `device_model` of configs/clusters has it")
    gemm_tflops: dict[Literal["fp32", "tf32", "fp16", "bf16"], PositiveFloat] = Field(
        min_length=1, description="Peak rate of large matrix products in TFLOP/s, by precision of compute"
    )
    gemm_efficiency: float = Field(gt=0, le=1, description="Share of the peak that a model's layers reach")
    thin_tflops: PositiveFloat = Field(
        description="Rate of fp32 products with a thin factor in TFLOP/s: the exchange's arithmetic"
    )
    memory_gbyte_s: PositiveFloat = Field(description="Memory bandwidth that a kernel reaches, in GB/s")
    launch_us: NonNegativeFloat = Field(description="A kernel's launch, in µs")
    memory_gbyte: PositiveFloat | None = Field(None, description="Memory of a device in GB; null: not looked at")
    link_efficiency: float = Field(
        gt=0, le=1, description="Share of a link's nominal rate that a collective's bytes reach"
    )
    link_latency_us: NonNegativeFloat = Field(description="A message's latency between nodes, in µs")
    endpoint_gbyte_s: PositiveFloat | None = Field(
        None,
        description="Rate in GB/s at which a process copies and adds what it sends and receives, where that comes on "
        "top of the link's time; null: it is hidden behind it",
    )
    sender_waits: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of a transfer to a neighbouring pipeline stage for which its sender waits; 1: until it has "
        "arrived, 0: a buffer takes it",
    )
    inside_gbyte_s: PositiveFloat = Field(description="What a device sends to others of its node, in GB/s")
    inside_latency_us: NonNegativeFloat = Field(description="A message's latency inside a node, in µs")
    stages: tuple[Stages, ...] = Field((), description="Models whose stages were timed here")
    stage_speeds: tuple[PositiveFloat, ...] = Field(
        (), description="Speed of each pipeline stage's devices against these rates, e.g. [1, 1, 0.5, 1]; empty: all 1"
    )
