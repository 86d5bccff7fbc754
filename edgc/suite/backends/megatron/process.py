"""A process's place in the job: process groups, device and random state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, model_parallel_cuda_manual_seed

from edgc.suite.backends.megatron import cpu, gradient_norm
from edgc.suite.config import RunSpec


@dataclass(frozen=True)
class Place:
    """Where this process stands in tensor × pipeline × data."""

    rank: int
    world: int
    tensor: int
    stage: int
    num_stages: int
    data: int
    device: torch.device

    @property
    def first_stage(self) -> bool:
        return self.stage == 0

    @property
    def last_stage(self) -> bool:
        return self.stage == self.num_stages - 1


def join(spec: RunSpec) -> Place:
    """Join the job that torchrun started (its environment variables) and make megatron's process groups."""
    device = torch.device("cpu")
    shared = spec.cluster.processes_per_gpu
    if spec.cluster.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) // shared)
        torch.cuda.set_device(device)
        # whatever a site's module has set (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE): fp32 is fp32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    else:
        torch.set_num_threads(spec.cluster.threads_per_process)
    cpu.install()
    gradient_norm.install()
    timeout = timedelta(seconds=spec.cluster.timeout_seconds)
    if device.type == "cuda" and shared == 1:
        # with its device NCCL connects now, and every group when it is made: not in a timed step
        dist.init_process_group("nccl", timeout=timeout, device_id=device)
    else:
        dist.init_process_group("gloo", timeout=timeout)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=spec.parallel.tensor,
        pipeline_model_parallel_size=spec.parallel.pipeline,
        distributed_timeout_minutes=spec.cluster.timeout_seconds / 60,  # type: ignore[arg-type]
        create_gloo_process_groups=False,  # of use to megatron's own checkpoints only
    )
    place = Place(
        rank=dist.get_rank(),
        world=dist.get_world_size(),
        tensor=parallel_state.get_tensor_model_parallel_rank(),
        stage=parallel_state.get_pipeline_model_parallel_rank(),
        num_stages=spec.parallel.pipeline,
        data=parallel_state.get_data_parallel_rank(),
        device=device,
    )
    seed_everything(spec.seed, place)
    return place


def seed_everything(seed: int, place: Place) -> None:
    """Seed dropout: different per stage and data-parallel rank, and inside tensor-parallel regions per TP rank."""
    local = seed + 100 * place.stage + 10_000 * place.data
    torch.manual_seed(local)
    if place.device.type == "cuda":
        model_parallel_cuda_manual_seed(local)
    else:
        tracker: Any = get_cuda_rng_tracker()
        tracker.reset()
        tracker.add("model-parallel-rng", local + 2718 + place.tensor)


def random_state(device: torch.device) -> dict[str, Any]:
    """What is drawn from in this process, to go on from."""
    tracker: Any = get_cuda_rng_tracker()
    state = {"cpu": torch.get_rng_state(), "tracker": tracker.get_states()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if device.type == "cuda" else {})


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore what `random_state` gave."""
    tracker: Any = get_cuda_rng_tracker()
    torch.set_rng_state(state["cpu"])
    tracker.set_states(state["tracker"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def leave() -> None:
    """Destroy the process groups."""
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
