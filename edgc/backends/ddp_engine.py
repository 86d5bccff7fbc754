"""A GPT-2 in a plain loop under PyTorch's DDP: where our exchange and PyTorch's own hook can be timed side by side."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from edgc.aggregators.controls import TorchPowerSGDSettings
from edgc.backends.gpt2 import build_gpt2
from edgc.backends.megatron.process import Place
from edgc.backends.torch_ddp import compress
from edgc.comm.telemetry import Ledger, StepClock
from edgc.config import RunSpec
from edgc.policies.stage_alignment import ExchangeCost

ONE_BUCKET = 10**6  # megabytes
MEGABYTE = 2**20


class DDPEngine:
    """As a `MegatronEngine`, as far as a timing needs it, for data-parallel ranks on CPUs.

    Without overlap there is one bucket, as in megatron, which is also all that PyTorch's PowerSGD hook survives on
    gloo. That hook has no ledger: only the interfaces know what it sends, and its exchange counts as backward.
    """

    costs: list[ExchangeCost | None] = []  # noqa: RUF012

    def __init__(self, spec: RunSpec, place: Place, vocab_size: int) -> None:
        self.spec, self.place = spec, place
        self.clock = StepClock()
        self.ledger = Ledger(self.clock)
        size = spec.training.bucket_parameters
        cap = 4 * size / MEGABYTE if spec.method.overlap and size else ONE_BUCKET
        module = build_gpt2(spec.model, vocab_size, spec.seed)
        self.model = DistributedDataParallel(
            module, bucket_cap_mb=cap, gradient_as_bucket_view=True, broadcast_buffers=False
        )
        t = spec.training
        self.optimizer = torch.optim.AdamW(
            module.parameters(), lr=t.lr, betas=(t.beta1, t.beta2), eps=t.eps, weight_decay=t.weight_decay, fused=True
        )
        self._exchange = None
        hook = spec.method.aggregator
        if isinstance(hook, TorchPowerSGDSettings):
            self.model.register_comm_hook(_hook_state(spec, hook, self.model), powerSGD_hook)
        else:
            self._exchange = compress(self.model, spec.method, iterations=t.iterations, seed=spec.seed)
            self.ledger = self._exchange.ledger
            self.clock = self.ledger.clock
        self.dense_bytes = 4 * self.num_parameters

    @property
    def num_parameters(self) -> int:
        """Parameters; the tied embedding counts once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[torch.Tensor, float]:
        """One optimizer step (0-based `step`). Returns this rank's mean loss and the gradient norm.

        `micro_batches`: int64 [micro-batches, micro_batch, seq_length + 1].
        """
        self.model.train()
        self.optimizer.zero_grad()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        losses = []
        last = len(micro_batches) - 1
        for index, tokens in enumerate(torch.from_numpy(micro_batches)):
            with nullcontext() if index == last else self.model.no_sync():
                with self.clock.region("forward"):
                    logits = self.model(input_ids=tokens[:, :-1]).logits
                    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
                losses.append(loss.detach())
                if self._exchange is not None:
                    self._exchange.loss(losses[-1])
                with self.clock.region("backward"):
                    (loss / len(micro_batches)).backward()
        with self.clock.region("optimizer"):
            limit = self.spec.training.clip or float("inf")
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
            self.optimizer.step()
        return torch.stack(losses).mean(), float(norm)

    def end_step(self, loss: torch.Tensor) -> list[dict[str, Any]]:
        """The hook has done it."""
        return []

    def drain(self) -> None:
        """Every step ends its own exchange."""

    def timed(self) -> None:
        """One stage has nothing to align."""

    def decisions(self) -> list[dict[str, Any]]:
        """What holds for the next step; nothing of PyTorch's hook."""
        return self._exchange.decisions() if self._exchange is not None else []

    @property
    def group(self) -> dist.ProcessGroup:
        """The data-parallel ranks."""
        assert self.model.process_group is not None
        return self.model.process_group


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
