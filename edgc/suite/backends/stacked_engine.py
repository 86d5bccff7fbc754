"""All data-parallel replicas in one process: what they exchange never leaves it, and is counted as if it did.

A run takes one core, or one device, however many replicas it has: for losses, not for times.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.comm.loopback import LoopbackCommunicator, Ranks
from edgc.core.comm.telemetry import Charge, Ledger, StepClock
from edgc.core.exchange.costs import measure
from edgc.core.exchange.gradient_exchange import GradientExchange, compressible
from edgc.core.policies import POLICIES
from edgc.core.policies.policy import Context
from edgc.core.policies.stage_alignment import ExchangeCost
from edgc.core.settings.method import MECHANISMS
from edgc.core.synchronisation import SYNCHRONISATIONS
from edgc.core.synchronisation.hidden_matrices import is_hidden
from edgc.core.synchronisation.synchronisation import AdamState, Synchronisation, Update
from edgc.suite.backends.megatron.process import Place
from edgc.suite.backends.memory_owners import Held, inside
from edgc.suite.backends.plain_gpt import PlainGPT
from edgc.suite.config import RunSpec, Training

Costs = Sequence[ExchangeCost | None]


class StackedEngine:
    """As a `MegatronEngine` whose process is all replicas: `train_step` takes the micro-batches of all of them.

    With the same settings its losses are megatron's up to rounding, unless there is dropout.
    """

    def __init__(self, spec: RunSpec, place: Place, vocab_size: int, known_costs: Costs | None = None) -> None:
        """`known_costs`: of an earlier start of the same run; None: measured where the policy needs them."""
        self.spec, self.place = spec, place
        self._ranks = Ranks(spec.parallel.data, lambda: Ledger(StepClock(cuda=place.device.type == "cuda")))
        padded = spec.padded_vocabulary(vocab_size)
        self._replicas = self._ranks.run(lambda comm: _Replica(spec, comm, padded, place.device, known_costs))
        first = self._replicas[0]
        self.synchronisation, self.exchange, self.costs = first.synchronisation, first.exchange, first.costs
        self.ledger = _Ledgers(self._ranks)
        self.clock: StepClock = first.exchange.clock

    @property
    def group(self) -> None:
        """No process group: nothing is sent."""
        return None

    @property
    def num_parameters(self) -> int:
        """Of one replica, with the vocabulary's padding; the tied embedding counts once."""
        return sum(p.numel() for p in self._replicas[0].model.parameters())

    @property
    def dense_bytes(self) -> int:
        """Bytes that all replicas would hand over in a step if their gradients travelled uncompressed in fp32."""
        return 4 * self.num_parameters * len(self._replicas) if len(self._replicas) > 1 else 0

    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[Tensor, float]:
        """One optimizer step (0-based `step`). Returns the mean loss over replicas and the norm that they agree on.

        `micro_batches`: int64 [replicas, micro-batches, micro_batch, seq_length + 1].
        """
        ended = self._ranks.run(lambda comm: self._replicas[comm.rank].train_step(step, micro_batches[comm.rank], lr))
        self._step, self._losses = step, [loss for loss, _ in ended]
        return torch.stack(self._losses).mean(), ended[0][1]

    def end_step(self, loss: Tensor) -> list[dict[str, Any]]:
        """At a window's end, let the policy decide. Returns decision records."""

        def end(comm: LoopbackCommunicator) -> list[dict[str, Any]]:
            return self._replicas[comm.rank].synchronisation.end_step(self._step, self._losses[comm.rank])

        return self._ranks.run(end)[0]

    def drain(self) -> None:
        """Finish the exchange that is under way beside the next step, if there is one."""
        self._ranks.run(lambda comm: self._replicas[comm.rank].synchronisation.drain())

    def told(self) -> Mapping[str, float]:
        """What the synchronisation measured in the step, by column of its record."""
        return self.synchronisation.told()

    def timed(self, seconds: Mapping[str, float]) -> None:
        """A policy that reads how long a step takes is refused: there are no links here."""

    def decisions(self) -> list[dict[str, Any]]:
        """What holds for the first step."""
        return self.exchange.decisions(0)

    def evaluate(self, batches: Sequence[np.ndarray]) -> float:
        """Mean validation loss in nats a token, of the synchronised parameters; `batches` as `train_step`'s."""
        losses = self._ranks.run(lambda comm: self._replicas[comm.rank].evaluate([b[comm.rank] for b in batches]))
        self.ledger.forget()
        return math.fsum(losses) / len(losses)

    def held(self) -> Held:
        """All replicas' tensors that stay from step to step, by category."""
        found: dict[str, list[Tensor]] = {}
        for replica in self._replicas:
            for category, tensors in replica.held().items():
                found.setdefault(category, []).extend(tensors)
        return found

    def state_dict(self) -> dict[str, Any]:
        """All replicas' states, and the first one's model, which is exported; after a last step all are equal."""
        states = self._ranks.run(lambda comm: self._replicas[comm.rank].state_dict())
        rng = {"cpu": torch.get_rng_state()}
        if self.place.device.type == "cuda":
            rng["cuda"] = torch.cuda.get_rng_state()
        return {"model": states[0]["model"], "split": {}, "replicas": states, "rng": rng}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, of as many replicas."""
        self._ranks.run(lambda comm: self._replicas[comm.rank].load_state_dict(state["replicas"][comm.rank]))
        torch.set_rng_state(state["rng"]["cpu"])
        if "cuda" in state["rng"]:
            torch.cuda.set_rng_state(state["rng"]["cuda"])


class _Ledgers:
    """What all ranks' ledgers were charged, as one."""

    def __init__(self, ranks: Ranks) -> None:
        self._ledgers = [comm.ledger for comm in ranks.communicators]

    def take(self) -> dict[str, Charge]:
        """The sum of all ranks' charges by tag; the seconds are the first rank's."""
        charges = [ledger.take() for ledger in self._ledgers]
        total = charges[0]
        for other in charges[1:]:
            for tag, charge in other.items():
                into = total.setdefault(tag, Charge())
                into.calls += charge.calls
                into.payload_bytes += charge.payload_bytes
                into.wire_bytes += charge.wire_bytes
        return total

    def forget(self) -> None:
        """Drop what was charged since the last `take`, on all ranks."""
        for ledger in self._ledgers:
            ledger.forget()


class _Replica:
    """One replica: its model, exchange and optimizer; what its synchronisation sees of it (`Replica`)."""

    def __init__(
        self, spec: RunSpec, comm: LoopbackCommunicator, vocab_size: int, device: torch.device, costs: Costs | None
    ) -> None:
        t = spec.training
        self._t, self._device, self._clock = t, device, comm.ledger.clock
        self.model = PlainGPT(spec.model, vocab_size, spec.seed).to(device)
        self._named = dict(self.model.named_parameters())
        self.lr, self.parameters = 0.0, {name: p.detach() for name, p in self._named.items()}
        # one buffer, laid out from the model's end as megatron's is
        flat = torch.zeros(sum(p.numel() for p in self._named.values()), device=device)
        reverse = [*reversed(self._named.items())]
        for (_, p), part in zip(reverse, flat.split([p.numel() for _, p in reverse]), strict=True):
            p.grad = part.view(p.shape)
        self._flat = flat
        self.buckets = [[NamedTensor(name, p.grad) for name, p in reverse]]  # type: ignore[arg-type]
        self._optimizers = _optimizers(t, self._named)
        self.costs: list[ExchangeCost | None] = list(costs or ())
        self.exchange = self._build_exchange(spec, comm)
        settings = spec.method.synchronisation
        self.synchronisation: Synchronisation = SYNCHRONISATIONS[settings.name](settings, self.exchange, t.iterations)

    def _build_exchange(self, spec: RunSpec, comm: LoopbackCommunicator) -> GradientExchange:
        method, kind = spec.method, MECHANISMS[spec.method.aggregator.name]
        everything = {name: tuple(p.shape) for name, p in self._named.items()}
        shapes = compressible(everything, kind.amount, method.placement.exclude)
        if method.policy.needs_costs and not self.costs:
            own = kind(method.aggregator, seed=spec.seed)
            self.costs = [measure(own, everything, shapes, comm, comm, self._device)]
            comm.ledger.forget()
        exchanges = method.synchronisation.exchanges(spec.training.iterations)
        policy = POLICIES[method.policy.name](method.policy, Context(0, 1, exchanges, shapes, shapes, self.costs))
        compresses = 0 in (method.placement.stages or (0,))
        return GradientExchange(
            kind(method.aggregator, seed=spec.seed), policy, comm, comm, shapes, compresses=compresses
        )

    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[Tensor, float]:
        """This replica's part of a step. Returns its mean loss and the agreed norm."""
        synchronisation = self.synchronisation
        self.model.train()
        self._flat.zero_()
        self.lr, losses = lr, []
        synchronisation.begin_step(step, self)
        for index, tokens in enumerate(micro_batches, start=1):
            with self._clock.region("forward"):
                loss = self._loss(tokens)
            losses.append(loss.detach())
            if index == len(micro_batches):
                synchronisation.forward_done()
            with self._clock.region("backward"):
                (loss / len(micro_batches)).backward()
        works = [synchronisation.bucket(bucket) for bucket in self.buckets]
        for work in works:
            work.wait()
        update = synchronisation.before_optimizer(step, self)
        with self._clock.region("optimizer"):
            norm = self._clip(synchronisation.own)
            if math.isfinite(norm) and update is Update.OPTIMIZER:
                self._step(lr, synchronisation.own)
                synchronisation.update(step, self)
        agreed = synchronisation.agreed_norm(step, norm)
        if math.isfinite(agreed):
            synchronisation.after_optimizer(step, self)
        return torch.stack(losses).mean(), agreed

    def _loss(self, tokens: np.ndarray) -> Tensor:
        on_device = torch.from_numpy(np.ascontiguousarray(tokens)).to(self._device)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._t.precision == "bf16"):
            return self.model(on_device)

    def _clip(self, own: Collection[str]) -> float:
        """Clip the gradients that the optimizer takes, by their joint norm. Returns the norm of all."""
        everything = float(torch.nn.utils.get_total_norm([p.grad for p in self._named.values() if p.grad is not None]))
        taken = [p.grad for name, p in self._named.items() if name not in own and p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(taken)) if own and taken else everything
        if taken and self._t.clip and math.isfinite(norm) and norm > self._t.clip:
            torch._foreach_mul_(taken, self._t.clip / (norm + 1e-6))  # type: ignore[attr-defined]
        return everything

    def _step(self, lr: float, own: Collection[str]) -> None:
        """The optimizer's step of all but `own` parameters."""
        kept = {name: self._named[name].grad for name in own}
        for name in own:
            self._named[name].grad = None
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["lr_mult"]
            optimizer.step()
        for name, gradient in kept.items():
            self._named[name].grad = gradient

    def evaluate(self, batches: Sequence[np.ndarray]) -> float:
        """Mean loss over micro-batches, of the synchronised parameters."""
        self.model.eval()
        with torch.no_grad(), self.synchronisation.synchronised(self):
            losses = [self._loss(tokens) for batch in batches for tokens in batch]
        return float(torch.stack(losses).double().mean())

    def weight_decay(self, name: str) -> float:
        """None of a vector's."""
        return self._t.weight_decay if self._named[name].dim() > 1 else 0.0

    def adam(self, name: str) -> AdamState | None:
        """AdamW's state of a parameter, not copied; None before its first step."""
        parameter, optimizer = self._named[name], self._optimizers[0]
        if not (state := optimizer.state.get(parameter)):
            return None
        return AdamState(state["exp_avg"], state["exp_avg_sq"], self._t.beta1, self._t.beta2, self._t.eps)

    def stages_of(self, name: str) -> int:
        """There is one stage."""
        return 1

    def changed(self) -> None:
        """There are no copies of parameters."""

    def tie(self) -> None:
        """There is one stage."""

    def held(self) -> Held:
        """Its tensors that stay from step to step, by category."""
        return {
            "parameters": list(self._named.values()),
            "gradients": [self._flat],
            "optimizer": list(inside([dict(optimizer.state) for optimizer in self._optimizers])),
            "method": list(inside((self.exchange.aggregators, self.synchronisation))),
            "other": [],
        }

    def state_dict(self) -> dict[str, Any]:
        """Parameters by name, the optimizers', the exchange's and the synchronisation's state."""
        synchronisation = self.synchronisation.state_dict()  # first: it drains
        return {
            "synchronisation": synchronisation,
            "exchange": self.exchange.state_dict(),
            "model": dict(self.parameters),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        for name, parameter in self.parameters.items():
            parameter.copy_(state["model"][name])
        for optimizer, own in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        self.exchange.load_state_dict(state["exchange"])
        self.synchronisation.load_state_dict(state["synchronisation"])


def _optimizers(t: Training, named: Mapping[str, torch.nn.Parameter]) -> list[torch.optim.Optimizer]:
    """AdamW; and Muon of hidden matrices where the training asks for it."""
    hidden = {n: p for n, p in named.items() if t.optimizer == "muon" and is_hidden(n, tuple(p.shape))}
    rest = [p for name, p in named.items() if name not in hidden]
    groups = [
        {"params": [p for p in rest if p.dim() > 1], "weight_decay": t.weight_decay, "lr_mult": 1.0},
        {"params": [p for p in rest if p.dim() == 1], "weight_decay": 0.0, "lr_mult": 1.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=t.lr, betas=(t.beta1, t.beta2), eps=t.eps, fused=True)
    if not hidden:
        return [adamw]
    muon = torch.optim.Muon(
        [{"params": [*hidden.values()], "lr_mult": t.muon.lr_ratio}],
        lr=t.lr * t.muon.lr_ratio,
        weight_decay=t.weight_decay,
        momentum=t.muon.momentum,
        nesterov=t.muon.nesterov,
        ns_steps=t.muon.ns_steps,
        adjust_lr_fn=t.muon.lr_scale,
    )
    return [adamw, muon]
