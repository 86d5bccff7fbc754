"""A GPT-2 in a plain PyTorch loop on data-parallel ranks: what DDP and FSDP2 share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import GPT2LMHeadModel

from edgc.core.comm.telemetry import Ledger, StepClock
from edgc.core.exchange.gradient_exchange import GradientExchange
from edgc.hooks.any_loop import Costs, LoopExchange
from edgc.suite.backends.gpt2 import build_gpt2
from edgc.suite.backends.megatron.process import Place
from edgc.suite.backends.memory_owners import Held, inside, local
from edgc.suite.config import RunSpec


class PlainEngine(ABC):
    """As a `MegatronEngine`, for data-parallel ranks on CPUs. The exchange runs inside of backward.

    With the same settings its losses are megatron's up to rounding, unless there is dropout: random numbers are drawn
    in another order.
    """

    model: Any  #: what a forward pass calls
    hook: LoopExchange | None  #: None: a hook of PyTorch's own is timed

    def __init__(self, spec: RunSpec, place: Place, vocab_size: int, known_costs: Costs | None = None) -> None:
        """`known_costs`: of an earlier start of the same run; None: measured where the policy needs them."""
        self.spec, self.place = spec, place
        module = build_gpt2(spec.model, spec.padded_vocabulary(vocab_size), spec.seed)
        self.model, self.hook = self.distribute(module, known_costs)
        self.ledger = self.hook.ledger if self.hook else Ledger(StepClock())
        self.clock = self.ledger.clock
        self.costs = self.hook.costs if self.hook else []
        self._named = dict(module.named_parameters())
        self.optimizer = _adamw(spec, list(self._named.values()))

    @abstractmethod
    def distribute(self, module: GPT2LMHeadModel, costs: Costs | None) -> tuple[Any, LoopExchange | None]:
        """Replicate or shard `module` over the ranks, with the method's exchange in it. Returns `model` and `hook`."""

    @abstractmethod
    def accumulates(self, last: bool) -> AbstractContextManager[Any]:
        """What a micro-batch's passes run in, so that gradients are exchanged with the `last` one only."""

    def norm_of_all(self, own: Tensor) -> Tensor:
        """The norm of all gradients, from that of those which this rank has."""
        return own

    def rest(self) -> None:
        """After forward passes without a backward, hold what a step begins with."""

    @property
    def exchange(self) -> GradientExchange:
        """The exchange of a method of ours."""
        assert self.hook is not None
        return self.hook.exchange

    @property
    def num_parameters(self) -> int:
        """Parameters, with the vocabulary's padding; the tied embedding counts once."""
        return sum(parameter.numel() for parameter in self._named.values())

    @property
    def dense_bytes(self) -> int:
        """Bytes that this rank would hand over in a step if its gradients travelled uncompressed in fp32."""
        return 4 * self.num_parameters if self.spec.parallel.data > 1 else 0

    @property
    def group(self) -> dist.ProcessGroup:
        """The data-parallel ranks."""
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[Tensor, float]:
        """One optimizer step (0-based `step`). Returns this rank's mean loss and the gradient norm.

        A norm that is not finite leaves the parameters and the optimizer as they were.

        `micro_batches`: int64 [micro-batches, micro_batch, seq_length + 1].
        """
        self.model.train()
        self.optimizer.zero_grad()
        losses = []
        for index, tokens in enumerate(torch.from_numpy(micro_batches), start=1):
            with self.accumulates(last=index == len(micro_batches)):
                with self.clock.region("forward"):
                    loss = self._loss(tokens)
                losses.append(loss.detach())
                if self.hook is not None:
                    self.hook.loss(losses[-1])
                with self.clock.region("backward"):
                    (loss / len(micro_batches)).backward()
        with self.clock.region("optimizer"):
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            norm = self._clip()
            if math.isfinite(norm):
                self.optimizer.step()
        return torch.stack(losses).mean(), norm

    def _loss(self, tokens: Tensor) -> Tensor:
        logits = self.model(input_ids=tokens[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def _clip(self) -> float:
        """Scale gradients so that the norm of all of them is at most the limit. Returns it as it was."""
        gradients = [local(p.grad) for p in self._named.values() if p.grad is not None]
        norm = float(self.norm_of_all(torch.nn.utils.get_total_norm(gradients)))
        limit = self.spec.training.clip
        if limit and norm > limit:
            torch._foreach_mul_(gradients, limit / (norm + 1e-6))  # type: ignore[attr-defined]
        return norm

    def end_step(self, loss: Tensor) -> list[dict[str, Any]]:
        """Records of what the policy decided; the exchange ended within backward."""
        return self.hook.decided if self.hook else []

    def drain(self) -> None:
        """Every step ends its own exchange."""

    def told(self) -> Mapping[str, float]:
        """A hook's synchronisation measures nothing."""
        return {}

    def timed(self, seconds: Mapping[str, float]) -> None:
        """One stage has nothing to align, and `check_method` refuses policies that read how long a step takes."""

    def decisions(self) -> list[dict[str, Any]]:
        """What holds for the next step; nothing of a hook of PyTorch's."""
        return self.hook.decisions() if self.hook else []

    def evaluate(self, batches: Sequence[np.ndarray]) -> float:
        """Mean validation loss in nats a token, over all ranks' parts of `batches`, equal on every rank."""
        self.model.eval()
        with torch.no_grad():
            losses = [self._loss(tokens) for batch in batches for tokens in torch.from_numpy(batch)]
        total = torch.stack([torch.stack(losses).sum(), torch.tensor(float(len(losses)))])
        dist.all_reduce(total)
        self.rest()
        self.ledger.forget()  # what an evaluation gathers is not the next step's
        return float(total[0] / total[1])

    def held(self) -> Held:
        """This rank's tensors that stay from step to step, by category."""
        return {
            "parameters": self._named.values(),
            "gradients": [p.grad for p in self._named.values() if p.grad is not None],
            "optimizer": inside(dict(self.optimizer.state)),
            "method": inside(self.hook),
            "other": self.model.buffers(),
        }

    def state_dict(self) -> dict[str, Any]:
        """This rank's parameters and moments (by name), exchange, RNG. `split_over`: the ranks that hold parts."""
        assert self.hook is not None
        sharded = [name for name, parameter in self._named.items() if hasattr(parameter, "to_local")]
        return {
            "model": {name: local(parameter) for name, parameter in self._named.items()},
            "split": dict.fromkeys(sharded, 0),
            "split_over": "data" if sharded else "tensor",
            "optimizer": {
                name: {what: local(value) for what, value in self.optimizer.state[parameter].items()}
                for name, parameter in self._named.items()
            },
            "exchange": self.hook.state_dict(),
            "rng": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on this rank of as many."""
        assert self.hook is not None
        for name, parameter in self._named.items():
            local(parameter).copy_(state["model"][name])
            moments = {what: _like(value, parameter) for what, value in state["optimizer"][name].items()}
            self.optimizer.state[parameter] = moments
        self.hook.load_state_dict(state["exchange"])
        torch.set_rng_state(state["rng"])


def _adamw(spec: RunSpec, parameters: Sequence[Tensor]) -> torch.optim.AdamW:
    """As megatron's: biases and layer norms do not decay."""
    t = spec.training
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": t.weight_decay},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=t.lr, betas=(t.beta1, t.beta2), eps=t.eps, fused=True)


def _like(own: Tensor, parameter: Any) -> Tensor:
    """What this rank has of a moment, sharded as its parameter is. Step counts are whole everywhere."""
    if not own.dim() or not hasattr(parameter, "device_mesh"):
        return own
    from torch.distributed.tensor import DTensor

    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(own, mesh, placements, shape=parameter.shape, stride=parameter.stride())
