"""Whether a model fits: bytes that the fullest device of a job needs.

Activations after Korthikanti et al. 2022 (arXiv 2205.05198), equation 2: s·b·h·(10 + 24/t + 5·a·s/(h·t)) a layer in
two bytes an element, and of as many micro-batches as 1F1B keeps; with recompute only each layer's input.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgc.base.errors import UserError
from edgc.cluster.compute import ITEMSIZE
from edgc.cluster.parameters import count, stage_parameters, vocabulary
from edgc.config import Calibration, RunSpec
from edgc.config.method import MECHANISMS
from edgc.exchange.gradient_exchange import compressible
from edgc.policies.amounts import DENSE
from edgc.policies.policy import Decision

GB = 1e9


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    model: float  #: parameters, gradients, and Adam's two moments (with bf16 also the fp32 parameters)
    method: float  #: what the aggregator and the synchronisation keep from step to step
    activations: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.model + self.method + self.activations


def memory(spec: RunSpec, precision: str) -> Memory:
    """What the fullest stage's devices need."""
    stages = range(spec.parallel.pipeline)
    return max((_stage(spec, precision, stage) for stage in stages), key=lambda found: found.total)


def _stage(spec: RunSpec, precision: str, stage: int) -> Memory:
    model, p = spec.model, spec.parallel
    shapes = stage_parameters(model, vocabulary(spec), p.tensor, p.pipeline, stage)
    itemsize = ITEMSIZE[precision]
    a_parameter = 16 if itemsize == 4 else 2 + 16  # value and gradient, moments: 4 bytes each; bf16: its own copy too
    b, s, h, t = spec.training.micro_batch, model.seq_length, model.hidden_size, p.tensor
    a_layer = b * s * h * (10 + 24 / t + 5 * model.num_heads * s / (h * t)) * itemsize / 2
    layers = model.num_layers / p.pipeline
    kept = min(p.pipeline - stage, spec.micro_batches)
    inputs = b * s * h * itemsize
    activations = kept * layers * inputs + a_layer if spec.training.recompute else kept * layers * a_layer
    if stage == p.pipeline - 1:
        activations += 2 * b * s * vocabulary(spec) / t * 4  # logits and their gradient, fp32
    return Memory(a_parameter * count(shapes), _state(spec, shapes, stage), activations)


def _state(spec: RunSpec, shapes: dict[str, tuple[int, ...]], stage: int) -> int:
    """What the method keeps from step to step, at the largest amounts that its policy may decide."""
    method, placement = spec.method, spec.method.placement
    kind = MECHANISMS[method.aggregator.name]  # type: ignore[attr-defined]
    if method.control or stage not in (placement.stages or (stage,)):
        return 0
    aggregator = kind(method.aggregator)
    may = compressible(shapes, kind.amount, placement.exclude)
    amounts = {name: aggregator.effective(shape, method.policy.largest) for name, shape in may.items()}  # type: ignore[attr-defined]
    own = method.synchronisation.state_bytes(shapes)  # type: ignore[attr-defined]
    return own + aggregator.state_bytes(shapes, Decision(DENSE, amounts))


def check_memory(spec: RunSpec, calibration: Calibration, precision: str) -> None:
    """Raises `UserError` where a device cannot hold its part of the job."""
    if calibration.memory_gbyte is None:
        return
    needed = memory(spec, precision)
    if needed.total > GB * calibration.memory_gbyte:
        p = spec.parallel
        raise UserError(
            f"{spec.model.name} does not fit: a {calibration.device_model} has {calibration.memory_gbyte:g} GB; with "
            f"tensor {p.tensor} × pipeline {p.pipeline} and micro_batch {spec.training.micro_batch} it needs about "
            f"{needed.total / GB:.0f} GB ({needed.model / GB:.0f} for parameters, gradients and Adam, "
            f"{needed.method / GB:.0f} for the method, {needed.activations / GB:.0f} for activations); use more tensor "
            "or pipeline parallelism, a smaller micro-batch, or recompute"
        )
