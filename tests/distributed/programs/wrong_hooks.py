"""Hooks and reduce-scatters that break one law each, and right ones: what `edgc check hook` is tested on.

wrong_hooks.py NAME    prints each law's status and what was measured.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

import edgc.fsdp
import edgc.torch_ddp
from edgc.hooks.check import check, target_of

CALLS = itertools.count()


def done(tensor: Tensor) -> torch.futures.Future[Tensor]:
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(tensor)
    return future


def averaged(tensor: Tensor) -> Tensor:
    tensor.div_(dist.get_world_size())
    dist.all_reduce(tensor)
    return tensor


def mean(state: Any, bucket: dist.GradBucket) -> Any:
    """The sum."""
    dist.all_reduce(bucket.buffer())
    return done(bucket.buffer())


def left_out(state: Any, bucket: dist.GradBucket) -> Any:
    """The last rank's gradients count for nothing."""
    if dist.get_rank() == dist.get_world_size() - 1:
        bucket.buffer().mul_(0)  # keeps NaN
    return done(averaged(bucket.buffer()))


def late(state: dict[int, Tensor], bucket: dist.GradBucket) -> Any:
    """The average of the step before."""
    now = averaged(bucket.buffer()).clone()
    before = state.get(bucket.index())
    state[bucket.index()] = now
    usable = before is not None and before.shape == now.shape and bool(before.isfinite().all() and now.isfinite().all())
    return done(before.clone() if usable and before is not None and bool(before.any()) and bool(now.any()) else now)


def equal_ranks(state: Any, bucket: dist.GradBucket) -> Any:
    """A scale that differs from rank to rank in its last bits."""
    return done(averaged(bucket.buffer()).mul_(1 + 1e-5 * dist.get_rank()))


def conservation(state: Any, bucket: dist.GradBucket) -> Any:
    """Small elements are left out, and forgotten."""
    whole = averaged(bucket.buffer())
    whole[whole.abs() < whole.square().mean().sqrt()] = 0
    return done(whole)


def not_finite(state: dict[int, Tensor], bucket: dist.GradBucket) -> Any:
    """bf16 with error feedback, which a NaN never leaves."""
    exact = bucket.buffer()
    kept = state.get(bucket.index())
    if kept is not None and kept.shape == exact.shape:
        exact = exact + kept
    sent = exact.bfloat16()
    state[bucket.index()] = exact - sent.to(exact.dtype)
    return done(averaged(sent.to(exact.dtype)))


def zeros_and_unused(state: Any, bucket: dist.GradBucket) -> Any:
    """Scaled by the largest element, which may be zero."""
    largest = bucket.buffer().abs().max()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return done(averaged(bucket.buffer() / largest) * largest)


def unused_apart(state: Any, bucket: dist.GradBucket) -> Any:
    """A rank keeps its zeros, as one does that leaves out what it has no gradient of."""
    own = [not gradient.any() for gradient in bucket.gradients()]
    whole = averaged(bucket.buffer())
    for gradient, zero in zip(bucket.gradients(), own, strict=True):
        if zero:
            gradient.zero_()
    return done(whole)


def new_buckets(state: dict[int, Tensor], bucket: dist.GradBucket) -> Any:
    """A buffer that is made once for a bucket's number."""
    wire = state.setdefault(bucket.index(), torch.empty_like(bucket.buffer()))
    wire.copy_(bucket.buffer())
    return done(averaged(wire).clone())


def resume(state: Any, bucket: dist.GradBucket) -> Any:
    """Random rounding, drawn by how often this process has called it."""
    draw = torch.Generator().manual_seed(next(CALLS))
    wire, scale = bucket.buffer(), 2**-12
    draws = torch.rand(wire.shape, generator=draw).to(wire.dtype)
    return done(averaged(wire + scale * (draws - 0.5) * wire.abs()))


def sixteen_bits(state: Any, bucket: dist.GradBucket) -> Any:
    """The sum is made before it is divided."""
    dist.all_reduce(bucket.buffer())
    return done(bucket.buffer().div_(dist.get_world_size()))


def determinism(state: Any, bucket: dist.GradBucket) -> Any:
    """Random rounding, from the machine's entropy."""
    draw = torch.Generator()
    draw.seed()
    wire = bucket.buffer()
    return done(averaged(wire + 2**-12 * torch.rand(wire.shape, generator=draw).to(wire.dtype) * wire.abs()))


class Sums(DefaultReduceScatter):
    """The sum, whatever FSDP2 asks for."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        return super().__call__(output_tensor, input_tensor, group, dist.ReduceOp.SUM, async_op)


def torch_state() -> powerSGD_hook.PowerSGDState:
    return powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)


def powersgd(ddp: Any) -> Any:
    return edgc.torch_ddp.compress(ddp, "powersgd", iterations=200, policy={"rank": 2, "start_step": 3})


def int4(model: Any) -> Any:
    return edgc.fsdp.compress(model, "int4", iterations=200)


WRONG = {
    hook.__name__: target_of(hook)
    for hook in (
        mean,
        left_out,
        equal_ranks,
        conservation,
        unused_apart,
        zeros_and_unused,
        resume,
        sixteen_bits,
        determinism,
    )
} | {hook.__name__: target_of(hook, state=dict) for hook in (late, not_finite, new_buckets)}
TARGETS = WRONG | {
    "fsdp_mean": target_of(Sums),
    "torch": target_of(default_hooks.allreduce_hook),
    "torch_bf16": target_of(default_hooks.bf16_compress_hook),
    "torch_powersgd": target_of(powerSGD_hook.powerSGD_hook, state=torch_state),
    "torch_fsdp": target_of(DefaultReduceScatter),
    "powersgd": target_of(powersgd),
    "fsdp_int4": target_of(int4, fsdp=True),
}

if __name__ == "__main__":
    print(json.dumps({v.law: (v.status, v.measured) for v in check(TARGETS[sys.argv[1]], steps=64)}))
