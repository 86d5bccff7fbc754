"""Whether a model fits: bytes that the fullest device of a job needs.

Activations as in Korthikanti et al. 2022 (arXiv 2205.05198), counted for what this project runs: megatron-core's local
layers without fused kernels. A layer keeps s·b·h·(4 + 12/t) elements and the attention's softmax, a·s²·b/t, of as many
micro-batches as 1F1B keeps; with recompute only each layer's input. tests/dry holds it against a dry run's accounting.

Shards as in Rajbhandari et al. 2020 (arXiv 1910.02054): with `optimizer` a rank keeps its part of Adam's moments and of
fp32 copies, but megatron's whole buffer of gradients; with `full` its part of everything, in fp32. What an exchange or
a gather takes for itself after backward, when activations are gone, is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from edgc.core.base.errors import UserError
from edgc.core.exchange.gradient_exchange import compressible
from edgc.core.policies.amounts import DENSE
from edgc.core.policies.by_kind import placed
from edgc.core.policies.policy import Decision
from edgc.core.settings.method import MECHANISMS
from edgc.core.synchronisation.dion import is_hidden
from edgc.suite.cluster.parameters import Shape, count, stage_parameters, units, vocabulary
from edgc.suite.cluster.sharding import Sharding
from edgc.suite.config import Calibration, RunSpec
from edgc.suite.config.model import TIED

GB = 1e9
#: Bytes an element of the attention's scores that backward through softmax, mask and scale takes besides, by itemsize.
BACKWARD = {4: 10.0, 2: 5.5}


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, by category."""

    parameters: float
    gradients: float
    optimizer: float  #: its moments, and megatron's fp32 copies of bf16 parameters
    method: float  #: errors, and what else the aggregator and the synchronisation keep from step to step
    activations: float
    buffers: float = 0.0  #: of shards: exact copies of rounded parameters; gathered modules, and a module's gradients

    @property
    def total(self) -> float:
        """All of it."""
        return sum(getattr(self, name) for name in CATEGORIES)


CATEGORIES = tuple(each.name for each in fields(Memory))


def memory(spec: RunSpec, precision: str) -> Memory:
    """What the fullest stage's devices need."""
    return max(memory_by_stage(spec, precision), key=lambda found: found.total)


def memory_by_stage(spec: RunSpec, precision: str) -> list[Memory]:
    """What each stage's devices need."""
    return [_stage(spec, precision, stage) for stage in range(spec.parallel.pipeline)]


def _stage(spec: RunSpec, precision: str, stage: int) -> Memory:
    p = spec.parallel
    shapes = stage_parameters(spec.model, vocabulary(spec), p.tensor, p.pipeline, stage)
    sharding = Sharding(spec, precision)
    itemsize, full = sharding.itemsize, sharding.kind == "full"
    modules = units(shapes) if full else [shapes]
    sizes = [count(module) for module in modules]
    whole, own = sum(sizes), sum(map(sharding.share, modules))
    if full:  # gathered are the root and two layers: one that computes, and the next; and a module's fp32 gradients
        *layers, root = sizes
        buffers = itemsize * (root + sum(layers[:2])) + 4 * max(sizes)
    else:
        buffers = itemsize * own if sharding.keeps_exact else 0.0
    return Memory(
        parameters=4 * own if full else itemsize * whole,
        gradients=4 * (own if full and spec.micro_batches == 1 else whole),  # several add up whole: see `sharding`
        optimizer=_moments(spec, shapes) * own / whole + (0 if full or itemsize == 4 else 4 * own),
        method=_state(spec, shapes, stage, sharding),
        activations=_activations(spec, itemsize, stage),
        buffers=buffers,
    )


def _moments(spec: RunSpec, shapes: dict[str, Shape]) -> int:
    """Bytes of moments: AdamW's two, Muon's one of a hidden matrix, none of what the method updates by itself."""
    muon, synchronisation = spec.training.optimizer == "muon", spec.method.synchronisation
    return sum(
        (4 if muon and is_hidden(name, shape) else 8) * count({name: shape})
        for name, shape in shapes.items()
        if not synchronisation.owns(name, shape)
    )


def _activations(spec: RunSpec, itemsize: int, stage: int) -> float:
    """What the micro-batches under way keep for backward, and what the one in backward needs besides."""
    model, p = spec.model, spec.parallel
    b, s, h, t = spec.training.micro_batch, model.seq_length, model.hidden_size, p.tensor
    fp32 = itemsize == 4
    inputs, scores, rows = b * s * h * itemsize, model.num_heads * s * s * b / t, vocabulary(spec) / t
    a_layer = b * s * h * (4 + 12 / t) * itemsize + scores * (4 if fp32 else 6)  # bf16: softmax in both precisions
    if model.dropout:  # a byte an element says what is dropped; in fp32 the result is kept beside the softmax
        a_layer += 2 * b * s * h + scores * (5 if fp32 else 1)
    again = a_layer if spec.training.recompute else 0
    stored = model.num_layers / p.pipeline * (inputs if again else a_layer)
    backward = again + scores * BACKWARD[itemsize] + 2 * inputs
    table = rows * h * itemsize  # the embedding's gradient, before it is added to the others
    if stage == p.pipeline - 1:  # logits and their gradients; then the embedding's
        backward = max(backward, rows * b * s * (4 if fp32 else 6), rows * b * s * itemsize + table)
    others = min(p.pipeline - stage, spec.micro_batches) - 1
    most = max(stored + backward, table if stage == 0 else 0)
    return others * stored + most + scores * itemsize  # megatron's buffer for products of queries and keys


def _state(spec: RunSpec, shapes: dict[str, Shape], stage: int, sharding: Sharding) -> int:
    """What the method keeps from step to step, at the largest amounts that its policy may decide."""
    method, placement = spec.method, spec.method.placement
    kind = MECHANISMS[method.aggregator.name]  # type: ignore[attr-defined]
    if method.control or stage not in (placement.stages or (stage,)):
        return 0
    if method.fused_embedding and spec.parallel.pipeline > 1:  # exchanged by itself, uncompressed
        shapes = {name: shape for name, shape in shapes.items() if name not in TIED}
    aggregator = kind(method.aggregator)
    aggregator.layout = sharding.layout(shapes)
    may = compressible(shapes, kind.amount, placement.exclude)
    largest = placed(Decision(method.policy.largest), may, placement.scale)  # type: ignore[attr-defined]
    amounts = {name: aggregator.effective(shape, largest.amount(name)) for name, shape in may.items()}
    own = method.synchronisation.state_bytes(shapes)  # type: ignore[attr-defined]
    count = method.synchronisation.aggregators(spec.parallel.data)  # type: ignore[attr-defined]
    return own + count * aggregator.state_bytes(shapes, Decision(DENSE, amounts))


def check_memory(spec: RunSpec, calibration: Calibration, precision: str) -> None:
    """Raises `UserError` where a device cannot hold its part of the job."""
    if calibration.memory_gbyte is None:
        return
    needed = memory(spec, precision)
    if needed.total > GB * calibration.memory_gbyte:
        p = spec.parallel
        parts = ", ".join(f"{getattr(needed, name) / GB:.0f} for {name}" for name in CATEGORIES)
        degrees = "more data-parallel ranks" if spec.loop == "ddp" else "more tensor or pipeline parallelism, shards"
        raise UserError(
            f"{spec.model.name} does not fit: a {calibration.device_model} has {calibration.memory_gbyte:g} GB; with "
            f"tensor {p.tensor} × pipeline {p.pipeline} and micro_batch {spec.training.micro_batch} it needs about "
            f"{needed.total / GB:.0f} GB ({parts}); use {degrees} or a smaller micro-batch"
        )
