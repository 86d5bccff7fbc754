"""The plain loop under PyTorch's DDP: where our exchange and PyTorch's own hook can be timed side by side."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2LMHeadModel

from edgc.core.aggregators.controls import TorchPowerSGDSettings
from edgc.hooks.any_loop import Costs, LoopExchange
from edgc.hooks.torch_ddp import compress
from edgc.suite.backends.memory_owners import Held, inside
from edgc.suite.backends.plain_engine import PlainEngine
from edgc.suite.config import RunSpec

ONE_BUCKET = 10**6  # megabytes
MEGABYTE = 2**20


class DDPEngine(PlainEngine):
    """Every rank holds everything.

    Without overlap there is one bucket, as in megatron, which is also all that PyTorch's PowerSGD hook survives on
    gloo. That hook has no ledger: only the interfaces know what it sends, and its exchange counts as backward.
    """

    _theirs: PowerSGDState | None = None

    def distribute(self, module: GPT2LMHeadModel, costs: Costs | None) -> tuple[Any, LoopExchange | None]:
        t, method = self.spec.training, self.spec.method
        size = t.bucket_parameters
        cap = 4 * size / MEGABYTE if method.overlap and size else ONE_BUCKET
        model = DistributedDataParallel(
            module, bucket_cap_mb=cap, gradient_as_bucket_view=True, broadcast_buffers=False
        )
        _settle(model)
        if isinstance(method.aggregator, TorchPowerSGDSettings):
            self._theirs = _hook_state(self.spec, method.aggregator, model)
            model.register_comm_hook(self._theirs, powerSGD_hook)
            return model, None
        return model, compress(model, method, iterations=t.iterations, seed=self.spec.seed, costs=costs)

    def accumulates(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self.model.no_sync()

    def held(self) -> Held:
        theirs = vars(self._theirs) if self._theirs else {}
        return {**super().held(), "method": inside((self.hook, theirs))}


def _settle(model: DistributedDataParallel) -> None:
    """Let DDP regroup its buckets by the order of backward now, in place of after a process's first step.

    A restored run would else add up the gradients of its first step in another order than a run that goes on.
    """
    with torch.random.fork_rng(devices=[]):
        model(input_ids=torch.zeros(1, 1, dtype=torch.long)).logits.sum().backward()
    model.zero_grad()


def _hook_state(spec: RunSpec, hook: TorchPowerSGDSettings, model: DistributedDataParallel) -> PowerSGDState:
    """PyTorch's state at the method's rank. It begins at the second step, before which its residuals may not exist."""
    assert model.process_group is not None
    return PowerSGDState(
        process_group=model.process_group,
        matrix_approximation_rank=spec.method.policy.rank,  # type: ignore[attr-defined]
        start_powerSGD_iter=2,
        min_compression_rate=hook.min_compression_ratio,  # type: ignore[arg-type]
        random_seed=spec.seed,
    )
