"""All data-parallel replicas in one process: what they exchange never leaves it, and is counted as if it did.

A run takes one core, or one device, however many replicas it has: for losses and bytes, not for times.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgc.core.comm.loopback import LoopbackCommunicator, Ranks
from edgc.core.comm.telemetry import Ledger, StepClock
from edgc.core.settings.assembly import assemble
from edgc.core.synchronisation.dion import is_hidden
from edgc.hooks.torch_replica import TorchReplica
from edgc.suite.backends.megatron.process import Place, random_state, set_random_state
from edgc.suite.backends.optimizers import adamw, muon, set_rate
from edgc.suite.backends.plain_gpt import PlainGPT
from edgc.suite.backends.training_engine import Engine, Held, inside
from edgc.suite.config import RunSpec

T = TypeVar("T")


class StackedEngine(Engine):
    """As a `MegatronEngine` whose process is all replicas: `train_step` takes the micro-batches of all of them.

    With the same settings its losses are megatron's up to rounding, unless there is dropout. They take turns
    (`Ranks`), so a step's seconds have no parts.
    """

    @property
    def group(self) -> None:
        """Nothing is sent."""

    def __init__(self, spec: RunSpec, place: Place, vocab_size: int) -> None:
        self.spec, self.place, self.costs = spec, place, []
        self.clock, self.ledger = StepClock(cuda=place.device.type == "cuda"), _Bytes()
        if place.device.type == "cpu":
            keep_memory()
        self._ranks = Ranks(spec.parallel.data, lambda: self.ledger)
        padded = spec.padded_vocabulary(vocab_size)
        self._replicas = self._ranks.run(lambda comm: _Replica(spec, comm, padded, place.device))
        self.ledger.forget()
        self.synchronisation = self._replicas[0].synchronisation

    def _each(self, body: Callable[[_Replica, int], T]) -> list[T]:
        """`body(replica, rank)` of all replicas, which may exchange in it."""
        return self._ranks.run(lambda comm: body(self._replicas[comm.rank], comm.rank))

    @property
    def num_parameters(self) -> int:
        """Of one replica."""
        return sum(p.numel() for p in self._replicas[0].parameters.values())

    @property
    def dense_bytes(self) -> int:
        """Of all replicas."""
        return 4 * self.num_parameters * len(self._replicas) if len(self._replicas) > 1 else 0

    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[Tensor, float]:
        """`micro_batches`: int64 [replicas, micro-batches, micro_batch, seq_length + 1]; the loss is all replicas'."""
        ended = self._each(lambda replica, rank: replica.train_step(step, micro_batches[rank], lr))
        self._step, self._losses = step, [loss for loss, _ in ended]
        return torch.stack(self._losses).mean(), ended[0][1]

    def end_step(self, loss: Tensor) -> list[dict[str, Any]]:
        return self._each(lambda replica, rank: replica.synchronisation.end_step(self._step, self._losses[rank]))[0]

    def drain(self) -> None:
        self._each(lambda replica, _: replica.synchronisation.drain())

    def timed(self, seconds: Mapping[str, float]) -> None:
        """Nothing: policies that read seconds are refused."""

    def evaluate(self, batches: Sequence[np.ndarray]) -> float:
        """`batches`: as `train_step`'s."""
        losses = self._each(lambda replica, rank: replica.evaluate([batch[rank] for batch in batches]))
        self.ledger.forget()
        return math.fsum(losses) / len(losses)

    def held(self) -> Held:
        """All replicas' tensors."""
        each = [replica.held() for replica in self._replicas]
        return {category: [tensor for own in each for tensor in own[category]] for category in each[0]}

    def state_dict(self) -> dict[str, Any]:
        """`model` is the first replica's, for the export: after the last step all are equal."""
        states = self._each(lambda replica, _: replica.state_dict())
        return {"model": states[0]["model"], "split": {}, "replicas": states, "rng": random_state(self.place.device)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._each(lambda replica, rank: replica.load_state_dict(state["replicas"][rank]))
        set_random_state(state["rng"])


def keep_memory() -> None:
    """Have glibc keep what is freed, for the whole process; elsewhere nothing.

    It gives blocks of more than some KiB back to the system, which clears their pages anew in every step: a fifth of a
    small model's time. Engines whose seconds are published do without, so that old and new ones compare.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # malloc.h
    if mallopt is not None:
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(top_pad, 64 * 2**20)
        mallopt(mmap_threshold, 32 * 2**20)  # the most that it takes


class _Bytes(Ledger):
    """What all replicas' collectives are charged. Their seconds are other replicas' turns: nothing is kept of them."""

    def took(self, tag: str, begin: Any) -> None:
        """Nothing."""


class _Replica(TorchReplica):
    """A replica: model, method and optimizers."""

    def __init__(self, spec: RunSpec, comm: LoopbackCommunicator, vocab_size: int, device: torch.device) -> None:
        """`vocab_size`: with its padding."""
        self._t, self._device = spec.training, device
        self.model = PlainGPT(spec.model, vocab_size, spec.seed).to(device)
        named = dict(self.model.named_parameters())
        shapes = {name: tuple(p.shape) for name, p in named.items()}
        hidden = {name for name in shapes if self._t.optimizer == "muon" and is_hidden(name, shapes[name])}
        optimizers: list[Any] = [adamw(self._t, [p for name, p in named.items() if name not in hidden])]
        optimizers += [muon(self._t, [named[name] for name in shapes if name in hidden])] if hidden else []
        super().__init__(named, optimizers)
        self.synchronisation, _ = assemble(spec.method, shapes, self._t.iterations, spec.seed, comm, device)
        if device.type == "cuda":  # leave nothing for the first steps to compile
            self.synchronisation.rehearse(spec.method.policy.changes, self)

    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[Tensor, float]:
        """This replica's part of a step, as `MegatronEngine.train_step` takes it."""
        self.lr, losses = lr, []
        for optimizer in self.optimizers:
            set_rate(optimizer, lr)
        self.model.train()
        self.flat.zero_()
        for name, gradient in self.gradients.items():
            self.named[name].grad = gradient
        self.begin_step(self.synchronisation, step)
        for left, tokens in enumerate(micro_batches, start=1 - len(micro_batches)):
            loss = self._loss(tokens)
            losses.append(loss.detach())
            if not left:
                self.synchronisation.forward_done()
            (loss / len(micro_batches)).backward()
        return torch.stack(losses).mean(), self.finish_step(self.synchronisation, step, self._t.clip)

    def _loss(self, tokens: np.ndarray) -> Tensor:
        on_device = torch.from_numpy(np.ascontiguousarray(tokens)).to(self._device)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._t.precision == "bf16"):
            return self.model(on_device)

    def evaluate(self, batches: Sequence[np.ndarray]) -> float:
        """Mean loss over micro-batches, of the synchronised parameters."""
        self.model.eval()
        with torch.no_grad(), self.synchronisation.synchronised(self):
            # numbers at once: tensors that stay split the kept blocks that the next batch wants
            losses = [self._loss(tokens).item() for batch in batches for tokens in batch]
        return float(torch.tensor(losses, dtype=torch.float64).mean())

    def held(self) -> dict[str, list[Tensor]]:
        """Its tensors that stay from step to step, by category."""
        return {
            "parameters": [*self.parameters.values()],
            "gradients": [self.flat],
            "optimizer": [*inside([dict(optimizer.state) for optimizer in self.optimizers])],
            "method": [*inside(self.synchronisation)],
            "other": [],
        }

    def state_dict(self) -> dict[str, Any]:
        """Parameters by name, the optimizers' and the method's state."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        return self.synchronisation.state_dict() | {"model": self.parameters, "optimizers": optimizers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        for name, parameter in self.parameters.items():
            parameter.copy_(state["model"][name])
        for optimizer, own in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        self.synchronisation.load_state_dict(state)
