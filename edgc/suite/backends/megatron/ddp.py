"""The seam: megatron's DistributedDataParallel with a synchronisation in place of its all-reduce.

Hooks, buckets, accumulation and overlap stay megatron's. Only `start_grad_sync` of its private bucket group is
replaced (pinned megatron-core 0.16.1), and the object that its `finish_grad_sync` waits on.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBucketGroup
from megatron.core.utils import get_attr_wrapped_model

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.comm import Communicator
from edgc.core.exchange.parameter_gather import ParameterWire
from edgc.core.synchronisation.synchronisation import NOTHING, Synchronisation
from edgc.suite.backends.megatron.process import Place
from edgc.suite.backends.megatron.shards import Gather


class CompressedBucketGroup(_ParamAndGradBucketGroup):
    """A bucket group whose gradients go to a synchronisation: those of the parameters in `names`.

    Where parameters are sharded, `gathers` bring back what their owners have updated.
    """

    def __init__(
        self,
        plain: _ParamAndGradBucketGroup,
        synchronisation: Synchronisation,
        names: dict[torch.nn.Parameter, str],
        data_parallel: Communicator,
        wire: ParameterWire,
    ) -> None:
        sharded = plain.ddp_config.use_distributed_optimizer
        group = plain.intra_distributed_optimizer_instance_group if sharded else plain.data_parallel_group
        super().__init__(plain.buckets, plain.ddp_config, group, group.size())
        held: list[Any] = [bucket.param_data for bucket in plain.buckets] if sharded else []
        self.gathers = [Gather(parameters, data_parallel, wire) for parameters in held]
        for bucket in plain.buckets:  # the exchange averages: megatron must mean the same by its factor
            assert bucket.gradient_scaling_factor == 1 / group.size()
        self._synchronisation = synchronisation
        self.gradients = [
            NamedTensor(names[parameter], parameter.main_grad)  # type: ignore[attr-defined]
            for bucket in plain.buckets
            for parameter in bucket.params_list
            if parameter in names
        ]

    def start_grad_sync(self, force_all_reduce: bool | None = False) -> None:
        """Encode and launch; `finish_grad_sync` waits on the handle. Without overlap both happen here."""
        if self.grad_reduce_handle is not None:
            assert self.is_first_batch  # megatron may start the first batch's buckets twice
            return
        work = self._synchronisation.bucket(self.gradients) if self.gradients else NOTHING
        if self.ddp_config.overlap_grad_reduce:
            self.grad_reduce_handle = work
        else:
            work.wait()

    def start_param_sync(self, force_sync: bool = False) -> None:
        """Gather what the optimizer has updated; megatron calls it at the end of the optimizer's step."""
        assert not self.ddp_config.overlap_param_gather
        for gather in self.gathers:
            gather.run()


def compress(
    model: DistributedDataParallel,
    synchronisation: Synchronisation,
    names: dict[torch.nn.Parameter, str],
    data_parallel: Communicator,
    wire: ParameterWire,
) -> None:
    """Have megatron's DDP exchange the parameters in `names` by CompressedBucketGroups. Before the first step."""
    assert not model.expert_parallel_bucket_groups
    groups = [CompressedBucketGroup(each, synchronisation, names, data_parallel, wire) for each in model.bucket_groups]
    model.bucket_groups = groups  # type: ignore[assignment]
    model.param_to_bucket_group = {p: group for group in groups for p in group.params}


def embedding_group(place: Place, timeout: timedelta) -> dist.ProcessGroup | None:
    """All data-parallel ranks of the first and of the last stage with this tensor-parallel rank; None between them.

    For Optimus-CC's fused embedding synchronisation (arXiv 2301.09830). Collective over the job.
    """
    places: list[Any] = [None] * place.world
    dist.all_gather_object(places, (place.tensor, place.first_stage or place.last_stage))
    tensor_ranks = sorted({tensor for tensor, _ in places})
    ranks = [[rank for rank, found in enumerate(places) if found == (tensor, True)] for tensor in tensor_ranks]
    group, _ = dist.new_subgroups_by_enumeration(ranks, timeout=timeout)
    return group  # type: ignore[return-value]


def tied_gradient(model: DistributedDataParallel) -> torch.Tensor:
    """Gradient of the word embedding that the first and the last stage share."""
    return get_attr_wrapped_model(model, "shared_embedding_or_output_weight")().main_grad


def sum_tied_gradient(model: DistributedDataParallel, embedding: Communicator | None) -> None:
    """The last part of megatron's `finalize_model_grads`, for this model.

    The tied word embedding lies on the first and the last stage; its gradient is the sum of both. `embedding` is
    the group of those two stages, None on the stages between. Where it holds all their data-parallel ranks
    (`embedding_group`), the exchange leaves that gradient out, and the sum is of both stages' means.
    """
    if embedding is None or embedding.size == 1:
        return
    gradient = tied_gradient(model)
    with embedding.ledger.clock.region("embedding"):
        if embedding.size > 2:
            gradient.div_(embedding.size // 2)
        embedding.all_reduce(gradient, tag="embedding").wait()
