"""What only timings are compared with: no exchange at all, and PyTorch's own hook. Nobody trains with either here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import (
    Aggregator,
    AggregatorSettings,
    Exchange,
    LastPending,
    NamedTensor,
)
from edgc.core.aggregators.workload import Shape, Workload
from edgc.core.comm import Communicator
from edgc.core.policies.amounts import On, Rank
from edgc.core.policies.policy import Decision


class NoExchangeSettings(AggregatorSettings):
    """No option."""

    name: Literal["none"]


class NoExchange(Aggregator):
    """Every rank keeps its own gradient, so the replicas drift apart: the floor of a step's time, and nothing else."""

    Settings = NoExchangeSettings
    amount = On
    state_size: ClassVar[str] = "none"
    payload_formula: ClassVar[str] = "0"
    role = "floor"

    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        yield LastPending()

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        return Workload()


class TorchPowerSGDSettings(AggregatorSettings):
    """Options of `torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook`, as its `PowerSGDState` has them."""

    name: Literal["torch_powersgd"]
    min_compression_ratio: float = Field(
        1.0, ge=0, description="A matrix travels dense unless rank·(m+n)·this < m·n (`min_compression_rate`)"
    )


class TorchPowerSGD:
    """PyTorch's `powerSGD_hook`. It registers itself with DistributedDataParallel (see `loop: ddp`): no aggregator."""

    Settings = TorchPowerSGDSettings
    amount = Rank
    state_size: ClassVar[str] = "m·n (error feedback) + r·(m+n) per matrix"
    payload_formula: ClassVar[str] = "4·r·(m+n) per matrix, 4·numel for what travels dense"
    role = "other"
