"""A GPT-2 in a plain PyTorch loop, where our exchange and PyTorch's own hook are timed side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2LMHeadModel

from edgc.core.aggregators.controls import TorchPowerSGDSettings
from edgc.core.comm.telemetry import Ledger, StepClock
from edgc.core.settings.assembly import Costs
from edgc.hooks import torch_ddp, torch_fsdp
from edgc.hooks.any_loop import LoopExchange
from edgc.hooks.torch_replica import clip, like, local, norm_of
from edgc.suite.backends.gpt2 import build_gpt2
from edgc.suite.backends.megatron.process import Place
from edgc.suite.backends.optimizers import adamw, set_rate
from edgc.suite.backends.training_engine import Engine, Held, inside
from edgc.suite.config import RunSpec

ONE_BUCKET = 10**6  # megabytes
MEGABYTE = 2**20


class PlainEngine(Engine):
    """A GPT-2 on data-parallel ranks of CPUs, under DDP or FSDP2. The exchange runs inside of backward.

    With the same settings its losses are megatron's up to rounding, unless there is dropout: random numbers are drawn
    in another order. With `training.shard: full` every rank keeps its share of parameters, gradients and moments.
    """

    hook: LoopExchange | None  #: None: a hook of PyTorch's own is timed
    _theirs: PowerSGDState | None = None  # that one's

    def __init__(self, spec: RunSpec, place: Place, vocab_size: int, known_costs: Costs | None = None) -> None:
        """`known_costs`: of an earlier start of the same run; None: measured where the policy needs them."""
        self.spec, self.place = spec, place
        module = build_gpt2(spec.model, spec.padded_vocabulary(vocab_size), spec.seed)
        self._sharded = spec.training.shard == "full"
        self.model, self.hook = self._shard(module, known_costs) if self._sharded else self._copy(module, known_costs)
        self.synchronisation = self.hook.synchronisation if self.hook else None
        self.ledger = self.hook.ledger if self.hook else Ledger(StepClock())
        self.clock = self.ledger.clock
        self.costs = self.hook.costs if self.hook else []
        self._named = dict(module.named_parameters())
        self.optimizer = adamw(spec.training, list(self._named.values()))

    def _copy(self, module: GPT2LMHeadModel, costs: Costs | None) -> tuple[Any, LoopExchange | None]:
        """A whole model on every rank.

        Without overlap there is one bucket, as in megatron, which is also all that PyTorch's PowerSGD hook survives on
        gloo. That hook has no ledger: only the interfaces know what it sends, and its exchange counts as backward.
        """
        t, method = self.spec.training, self.spec.method
        size = t.bucket_parameters or max(40_000_000, 1_000_000 * self.spec.parallel.data)  # megatron's default
        cap = 4 * size / MEGABYTE if method.overlap else ONE_BUCKET
        model = DistributedDataParallel(
            module, bucket_cap_mb=cap, gradient_as_bucket_view=True, broadcast_buffers=False
        )
        _settle(model)
        if isinstance(method.aggregator, TorchPowerSGDSettings):
            self._theirs = _hook_state(self.spec, method.aggregator, model)
            model.register_comm_hook(self._theirs, powerSGD_hook)
            return model, None
        return model, torch_ddp.compress(model, method, iterations=t.iterations, seed=self.spec.seed, costs=costs)

    def _shard(self, module: GPT2LMHeadModel, costs: Costs | None) -> tuple[Any, LoopExchange]:
        """Each layer is gathered for its forward and again for its backward; the rest of the model for both at once.

        The ledger counts what is gathered, whatever it is rounded to (`training.parameter_wire`).
        """
        mesh = DeviceMesh.from_group(self.group, "cpu")
        for layer in module.transformer.h:
            fully_shard(layer, mesh=mesh)
        model = fully_shard(module, mesh=mesh)
        t = self.spec.training
        options: dict[str, Any] = {"iterations": t.iterations, "seed": self.spec.seed, "costs": costs}
        return model, torch_fsdp.compress(model, self.spec.method, parameter_wire=t.parameter_wire, **options)

    def _accumulates(self, last: bool) -> AbstractContextManager[Any]:
        """What a micro-batch's passes run in, so that gradients are exchanged with the `last` one only."""
        if self._sharded:
            self.model.set_requires_gradient_sync(last)
        return nullcontext() if last or self._sharded else self.model.no_sync()

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self._named.values())

    @property
    def dense_bytes(self) -> int:
        return 4 * self.num_parameters if self.spec.parallel.data > 1 else 0

    @property
    def group(self) -> dist.ProcessGroup:
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[Tensor, float]:
        self.model.train()
        self.optimizer.zero_grad()
        losses = []
        for index, tokens in enumerate(torch.from_numpy(micro_batches), start=1):
            with self._accumulates(last=index == len(micro_batches)):
                with self.clock.region("forward"):
                    loss = self._loss(tokens)
                losses.append(loss.detach())
                if self.hook is not None:
                    self.hook.loss(losses[-1])
                with self.clock.region("backward"):
                    (loss / len(micro_batches)).backward()
        with self.clock.region("optimizer"):
            set_rate(self.optimizer, lr)
            norm = self._clip()
            if math.isfinite(norm):
                self.optimizer.step()
        return torch.stack(losses).mean(), norm

    def _loss(self, tokens: Tensor) -> Tensor:
        logits = self.model(input_ids=tokens[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def _clip(self) -> float:
        """Scale gradients so that the norm of all of them is at most the limit. Returns it as it was."""
        gradients = [p.grad for p in self._named.values() if p.grad is not None]
        clip([local(gradient) for gradient in gradients], norm := norm_of(gradients), self.spec.training.clip)
        return norm

    def end_step(self, loss: Tensor) -> list[dict[str, Any]]:
        """Records of what the policy decided; the exchange ended within backward."""
        return self.hook.decided if self.hook else []

    def evaluate(self, batches: Sequence[np.ndarray]) -> float:
        self.model.eval()
        with torch.no_grad():
            losses = [self._loss(tokens) for batch in batches for tokens in torch.from_numpy(batch)]
        total = torch.stack([torch.stack(losses).sum(), torch.tensor(float(len(losses)))])
        dist.all_reduce(total)
        if self._sharded:
            self.model.reshard()  # what a step begins with
        self.ledger.forget()  # what an evaluation gathers is not the next step's
        return float(total[0] / total[1])

    def held(self) -> Held:
        theirs = [getattr(self._theirs, name, None) for name in PowerSGDState.__slots__]  # it has no dict
        return {
            "parameters": self._named.values(),
            "gradients": [p.grad for p in self._named.values() if p.grad is not None],
            "optimizer": inside(dict(self.optimizer.state)),
            "method": inside((self.hook, theirs)),
            "other": self.model.buffers(),
        }

    def state_dict(self) -> dict[str, Any]:
        assert self.hook is not None
        return {
            "model": {name: local(parameter) for name, parameter in self._named.items()},
            "split": dict.fromkeys(self._named, 0) if self._sharded else {},
            "split_over": "data" if self._sharded else "tensor",
            "optimizer": {
                name: {what: local(value) for what, value in self.optimizer.state[parameter].items()}
                for name, parameter in self._named.items()
            },
            "exchange": self.hook.own_state(),
            "rng": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert self.hook is not None
        for name, parameter in self._named.items():
            local(parameter).copy_(state["model"][name])
            self.optimizer.state[parameter] = {  # step counts are whole everywhere
                what: like(value, parameter) if value.dim() else value
                for what, value in state["optimizer"][name].items()
            }
        self.hook.load_state_dict(state["exchange"])
        torch.set_rng_state(state["rng"])


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
