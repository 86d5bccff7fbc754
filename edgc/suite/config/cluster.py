"""Machines, links, and how a job is laid out on them: configs/clusters/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from edgc.core.base.settings import Settings, younger
from edgc.core.ops.backend import Backend
from edgc.core.settings.reading import Named
from edgc.suite.config.rate import Rate, bits_per_second
from edgc.suite.config.trace import Trace


class Links(Settings):
    """Links between the processes of one machine: each process gets a network namespace of its own (root only)."""

    rate: Rate | None = Field(None, description="What a process can send and receive, e.g. 200mbit; null: not limited")
    trace: Trace | None = younger(
        None,
        description="What the links' rates follow in the place of `rate`; an experiment's `traces` names files of them",
    )

    def refusals(self) -> Iterator[str]:
        if self.rate is not None and self.trace is not None:
            yield f"rate {self.rate}: the trace {self.trace.name} says the rates; leave one of both out"


class Schedule(Settings):
    """How a cluster's batch system is asked for the machines. Not part of a run's identity."""

    partition: str | None = Field(None, description="SLURM partition; null: the site's default")
    account: str | None = Field(None, description="SLURM account; null: the site's default")
    time_minutes: PositiveInt = Field(60, description="Time limit of one training job, in minutes")
    memory_mb_per_node: PositiveInt = Field(16000, description="Memory of a node for the job, in MB")
    cpus_per_task: PositiveInt = Field(1, description="CPU cores per process")
    checkpoint_seconds: PositiveInt = Field(
        120, description="Seconds before the time limit at which a run saves its state and has its job queued again"
    )
    runs_per_job: PositiveInt = Field(
        1, description="Training runs that share a job, one after another, with as many times its time limit"
    )
    extra: str = Field("", description="Further sbatch options, e.g. --constraint=h100")

    def refusals(self) -> Iterator[str]:
        if self.time_minutes * 60 < 2 * self.checkpoint_seconds:
            yield (
                f"checkpoint_seconds {self.checkpoint_seconds} must be at most half of time_minutes {self.time_minutes}"
            )


class Cluster(Named):
    """Machines and links (configs/clusters/)."""

    folder: ClassVar[str] = "clusters"

    device: Literal["cpu", "cuda"] = Field(description="Where a process computes")
    device_model: str = Field(description="What the device is, as printed, e.g. V100-SXM2-32GB")
    nodes: PositiveInt = Field(description="Machines")
    processes_per_node: PositiveInt = Field(description="Processes on a machine, one per GPU unless they share one")
    processes_per_gpu: PositiveInt = younger(
        1,
        description="Processes that share a GPU. More than 1 shows on one GPU that an exchange is right, not how long "
        "it takes: NCCL takes one process per GPU, so these exchange over gloo, through the host's memory",
    )
    link_gbit: float | None = Field(None, gt=0, description="Nominal link of a node in Gbit/s; null: unknown")
    links: Links | None = younger(
        None,
        description="Give every process of this one machine a network namespace and a link of its own, as if they were "
        "machines (root only); null: they share the machine's network",
    )
    interface: str | None = Field(None, description="Network interface for gloo and NCCL; null: their choice")
    environment: dict[str, str] = younger(
        {}, description="Environment variables of the processes, e.g. {NCCL_IB_HCA: mlx5_0}"
    )
    port: int | None = Field(
        None, ge=1024, le=65535, description="Rendezvous port; null: a free one, or one from the job id"
    )
    threads_per_process: PositiveInt = Field(1, description="Threads of a process on CPU")
    bind_to_cores: bool = Field(
        False, description="Bind every process to cores of its own, or to one that as few others as possible share"
    )
    kernels: Backend = younger(
        "auto",
        description="What does the exchange's arithmetic. auto: Triton's kernels on a GPU, torch on a CPU; torch, "
        "triton: that one, or an error",
    )
    timeout_seconds: PositiveInt = Field(600, description="A collective that takes longer ends the run")
    schedule: Schedule = Field(Schedule(), description="What the batch system is asked for")  # type: ignore[call-arg]

    @property
    def gbit(self) -> float | None:
        """Gbit/s of a node's link: what it is shaped to, else its nominal rate; None: unknown."""
        shaped = self.links and self.links.rate
        return bits_per_second(shaped) / 1e9 if shaped else self.link_gbit

    def refusals(self) -> Iterator[str]:
        if self.kernels == "triton" and self.device == "cpu":
            yield "kernels triton needs device cuda, but device is cpu; use kernels auto or torch"
        if self.processes_per_gpu > 1 and (self.device == "cpu" or self.processes_per_node % self.processes_per_gpu):
            yield (
                f"processes_per_gpu {self.processes_per_gpu} needs device cuda (is {self.device}) and as many "
                f"processes on every GPU of a node (processes_per_node is {self.processes_per_node}); leave it out, or "
                "change these"
            )
        if self.links and (self.nodes > 1 or self.device != "cpu" or self.interface):
            yield (
                f"links are made between processes of one machine: they need nodes 1 (is {self.nodes}), device cpu (is "
                f"{self.device}) and no interface (is {self.interface}); leave links out, or these"
            )
        trace = self.links and self.links.trace
        if trace and trace.highest_process >= self.processes:
            yield (
                f"links.trace {trace.name} changes the link of process {trace.highest_process}, but there are "
                f"{self.processes}, from 0; choose another trace, or a cluster of more processes"
            )

    @property
    def processes(self) -> int:
        """All processes of a job."""
        return self.nodes * self.processes_per_node

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a machine that a job uses, if it uses any."""
        return self.processes_per_node // self.processes_per_gpu


class Parallel(Settings):
    """Degrees of parallelism; their product is the number of processes."""

    tensor: PositiveInt = Field(1, description="Tensor-parallel degree")
    pipeline: PositiveInt = Field(1, description="Pipeline stages")
    data: PositiveInt = Field(1, description="Data-parallel degree")

    @property
    def processes(self) -> int:
        """tensor × pipeline × data."""
        return self.tensor * self.pipeline * self.data
