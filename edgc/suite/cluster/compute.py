"""Seconds of arithmetic: a stage's forward and backward, the optimizer, an exchange's kernels.

Operations of a GPT's layers: Narayanan et al. 2021 (SC21, arXiv 2104.04473), appendix; element-wise traffic after
Korthikanti et al. 2022 (arXiv 2205.05198). Muon's iterations: Jordan et al. 2024.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edgc.core.aggregators.workload import Kernel
from edgc.core.base.errors import UserError
from edgc.suite.cluster.parameters import layer_matrices, stage_count, vocabulary
from edgc.suite.cluster.transfers import Transfers
from edgc.suite.config import Calibration, RunSpec

ITEMSIZE = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
ADAM_BYTES = 36  #: read and written a parameter: gradient, value, two moments, the norm
ADAM_LAUNCHES = 20


@dataclass(frozen=True)
class StageSeconds:
    """One pipeline stage: a micro-batch's forward and backward, and what follows the exchange once a step."""

    forward: float
    backward: float
    optimizer: float
    tensor_traffic: float  #: of a micro-batch's forward and backward: all-reduces of tensor parallelism


def stages(spec: RunSpec, calibration: Calibration, transfers: Transfers, precision: str) -> list[StageSeconds]:
    """Every stage's seconds: as measured, where the calibration has this model's; else from rates and operations.

    Raises `UserError` for a precision that the calibration has no rate of, and for speeds of other stages.
    """
    check_precision(calibration, precision)
    p, speed = spec.parallel, speeds(calibration, spec.parallel.pipeline)
    muon = [_muon(spec, calibration, precision) / v for v in speed]
    for timed in calibration.stages:
        asked = (spec.model.name, p.tensor, spec.training.micro_batch, precision, p.pipeline)
        if asked == (timed.model, timed.tensor, timed.micro_batch, timed.precision, len(timed.forward_s)):
            each = zip(timed.forward_s, timed.backward_s, timed.optimizer_s, speed, muon, strict=True)
            parts = optimizer_parts(spec)
            return [StageSeconds(f / v, b / v, o / v / parts + more, 0.0) for f, b, o, v, more in each]
    computed = [_computed(spec, calibration, transfers, precision, stage, v) for stage, v in enumerate(speed)]
    return [replace(own, optimizer=own.optimizer + more) for own, more in zip(computed, muon, strict=True)]


def optimizer_parts(spec: RunSpec) -> int:
    """Into how many parts the optimizer's work is split."""
    return 1 if spec.training.shard == "none" else spec.parallel.data


def speeds(calibration: Calibration, stages: int) -> tuple[float, ...]:
    """Each stage's speed against the calibration's rates. Raises `UserError` for those of another number of stages."""
    found = calibration.stage_speeds or (1.0,) * stages
    if len(found) != stages:
        raise UserError(f"stage speeds {', '.join(f'{v:g}' for v in found)}: must be one for each of {stages} stages")
    return found


def check_precision(calibration: Calibration, precision: str) -> None:
    """Raises `UserError` for a precision that the calibration has no rate of."""
    if precision not in calibration.gemm_tflops:
        raise UserError(
            f"calibration {calibration.name}: no rate of {precision} products; there are "
            f"{', '.join(calibration.gemm_tflops)}"
        )


def _computed(
    spec: RunSpec, calibration: Calibration, transfers: Transfers, precision: str, stage: int, speed: float
) -> StageSeconds:
    model, p = spec.model, spec.parallel
    b, s, h, a, t = spec.training.micro_batch, model.seq_length, model.hidden_size, model.num_heads, p.tensor
    layers, itemsize = model.num_layers / p.pipeline, ITEMSIZE[precision]
    gemm = 1e12 * calibration.gemm_tflops[precision] * calibration.gemm_efficiency * speed  # type: ignore[index]
    memory = 1e9 * calibration.memory_gbyte_s * speed
    products = layers * (24 * b * s * h**2 + 4 * b * s**2 * h) / t / gemm
    others = layers * (b * s * h * (12 + 14 / t) + 5 * b * (a / t) * s**2) * itemsize / memory
    reduction = transfers.collective("all_reduce", b * s * h * itemsize, transfers.group("tensor")).seconds
    traffic = 2 * layers * reduction
    forward, backward = products + others + traffic, 2 * (products + others) + traffic
    if spec.training.recompute:
        backward += forward
    sent = traffic * (3 if spec.training.recompute else 2)
    rows = vocabulary(spec)
    if stage == p.pipeline - 1:
        head = 2 * b * s * h * rows / t / gemm + 16 * b * s * rows / t / memory
        forward, backward, sent = forward + head, backward + 2 * head + reduction, sent + reduction
    parameters = stage_count(model, rows, t, p.pipeline, stage) / optimizer_parts(spec)
    optimizer = ADAM_BYTES * parameters / memory + ADAM_LAUNCHES * 1e-6 * calibration.launch_us
    return StageSeconds(forward, backward, optimizer, sent)


def _muon(spec: RunSpec, calibration: Calibration, precision: str) -> float:
    """Seconds of Muon beyond AdamW's: of an m × n matrix, m ≤ n, X Xᵀ, its square and a product with X, in bf16."""
    if spec.training.optimizer != "muon":
        return 0.0
    p, rates = spec.parallel, calibration.gemm_tflops
    matrices = map(sorted, layer_matrices(spec.model, p.tensor, p.pipeline))
    products = sum(4 * m * m * n + 2 * m**3 for m, n in matrices) * spec.training.muon.ns_steps
    return products / (1e12 * rates.get("bf16", rates[precision]) * calibration.gemm_efficiency)  # type: ignore[index]


def head_share(spec: RunSpec) -> float:
    """Share of a whole model's operations, of forward and of backward, that the output layer takes."""
    model, rows = spec.model, vocabulary(spec)
    layers = model.num_layers * (24 * model.hidden_size + 4 * model.seq_length)
    return 2 * rows / (layers + 2 * rows)


def seconds(kernels: Iterable[Kernel], calibration: Calibration) -> float:
    """Seconds of an exchange's kernels, one after another."""
    flops, memory, launch = (
        1e12 * calibration.thin_tflops,
        1e9 * calibration.memory_gbyte_s,
        1e-6 * calibration.launch_us,
    )
    return sum(max(k.flops / flops, k.bytes / memory) + k.launches * launch + k.host_seconds for k in kernels)
