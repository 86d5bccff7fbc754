"""One process's share of a megatron job: model, exchange and optimizer, stepped through megatron's 1F1B schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.utils import get_model_config

from edgc.core.comm import Communicator, TorchCommunicator
from edgc.core.comm.telemetry import Ledger, StepClock
from edgc.core.policies.stage_alignment import ExchangeCost
from edgc.core.settings.assembly import assemble
from edgc.core.synchronisation.synchronisation import Synchronisation, Update
from edgc.suite.backends.megatron.ddp import (
    CompressedBucketGroup,
    compress,
    embedding_group,
    sum_tied_gradient,
    tied_gradient,
)
from edgc.suite.backends.megatron.gpt_model import build_model, global_names, is_split
from edgc.suite.backends.megatron.optimizer import MegatronReplica, Optimizer
from edgc.suite.backends.megatron.pipeline import ChargedP2P
from edgc.suite.backends.megatron.process import Place, random_state, set_random_state
from edgc.suite.backends.megatron.shards import Shards, kept, owners
from edgc.suite.backends.training_engine import Engine, Held, inside
from edgc.suite.config import RunSpec
from edgc.suite.config.model import TIED

GROUPS = ["tp", "pp", "cp", "dp", "dp_cp", "tp_dp_cp", "embd", "pos_embd"]


class MegatronEngine(Engine):
    """A model and its optimizer on this process's place of a megatron job, stepped through its 1F1B schedule."""

    synchronisation: Synchronisation

    def __init__(
        self, spec: RunSpec, place: Place, vocab_size: int, known_costs: Sequence[ExchangeCost | None] | None = None
    ) -> None:
        """`known_costs`: of an earlier start of the same run; None: measured where the policy needs them."""
        self.spec, self.place = spec, place
        self.clock = StepClock(cuda=place.device.type == "cuda")
        self.ledger = Ledger(self.clock)
        module = build_model(spec, place, vocab_size)
        self._named = dict(global_names(module, place.stage, place.num_stages, spec.model.num_layers))
        self.shapes = {name: tuple(parameter.shape) for name, parameter in self._named.items()}
        self._groups = ProcessGroupCollection.use_mpu_process_groups(GROUPS)
        self._data_parallel = TorchCommunicator(self._groups.dp, self.ledger)
        #: What the exchange averages; the embedding's group averages the gradients of what is fused.
        fused = TIED if spec.method.fused_embedding else ()
        self._exchanged = {name: p for name, p in self._named.items() if name not in fused}
        self.synchronisation, self.costs = assemble(
            spec.method,
            {name: self.shapes[name] for name in self._exchanged},
            spec.training.iterations,
            spec.seed,
            self._data_parallel,
            place.device,
            known_costs,
            agreement=TorchCommunicator(self._groups.tp_dp_cp, self.ledger),
            stage=place.stage,
            stages=TorchCommunicator(self._groups.pp, self.ledger) if place.num_stages > 1 else None,
        )
        self._config = get_model_config(module)
        self.model = self._data_parallel_model(module)
        self._updates = Optimizer(spec.training, self.model, self._named)
        self.optimizer: Any = self._updates.chained
        groups = [group for group in self.model.bucket_groups if isinstance(group, CompressedBucketGroup)]
        self._gathers = [gather for group in groups for gather in group.gathers]
        self._shards = Shards(self._gathers, self.optimizer) if self._sharded else None
        self._embedding = self._embedding_group()
        buckets = [group.gradients for group in groups if group.gradients]
        tied = tied_gradient(self.model) if self._embedding is not None and place.num_stages > 1 else None
        self.replica = MegatronReplica(self._exchanged, buckets, tied, self._embedding, self._updates)
        self._step, self._update, self._forwards_left = 0, Update.OPTIMIZER, 0
        self._config.finalize_model_grads_func = self._finalize_gradients
        self._config.grad_scale_func = self.optimizer.scale_loss
        self._config.no_sync_func = self.model.no_sync if spec.method.overlap else None
        self._schedule = get_forward_backward_func()
        self._p2p = ChargedP2P(self._groups.pp, self._config, self.ledger, spec.method.pipeline, spec.seed)
        if place.device.type == "cuda":
            self._rehearse()

    def _rehearse(self) -> None:
        """Leave nothing for the first steps to compile."""
        self.synchronisation.rehearse(self.spec.method.policy.changes, self.replica)
        if self.spec.method.pipeline.compresses:
            model = self.spec.model
            message = (model.seq_length, self.spec.training.micro_batch, model.hidden_size)
            self._p2p.rehearse(message, self.place.device)
        self.ledger.forget()

    def _data_parallel_model(self, module: torch.nn.Module) -> DistributedDataParallel:
        names = {parameter: name for name, parameter in self._exchanged.items()}
        model = DistributedDataParallel(config=self._config, ddp_config=self._ddp_config(), module=module)
        compress(model, self.synchronisation, names, self._data_parallel, self.spec.training.parameter_wire)
        if self._sharded:
            self.synchronisation.needed_on(owners(model, names, self._data_parallel.size))
        return model

    def _ddp_config(self) -> DistributedDataParallelConfig:
        return DistributedDataParallelConfig(
            grad_reduce_in_fp32=True,
            overlap_grad_reduce=self.spec.method.overlap,
            bucket_size=self.spec.training.bucket_parameters,
            use_distributed_optimizer=self._sharded,
            # of megatron's own reduce-scatter, which only stock megatron runs
            reduce_scatter_with_fp32_accumulation=self._sharded,
        )

    def _finalize_gradients(self, *unused: Any, **unused_options: Any) -> None:
        """Backward is done: the buckets' exchange, what the synchronisation makes of it, and the tied embedding."""
        self.model.finish_grad_sync()
        self._update = self.synchronisation.before_optimizer(self._step, self.replica)
        sum_tied_gradient(self.model, self._embedding)

    def _embedding_group(self) -> Communicator | None:
        if self.spec.method.fused_embedding:
            group = embedding_group(self.place, timedelta(seconds=self.spec.cluster.timeout_seconds))
            return None if group is None else TorchCommunicator(group, self.ledger)
        member = self.place.first_stage or self.place.last_stage
        return TorchCommunicator(self._groups.embd, self.ledger) if member and self.place.num_stages > 1 else None

    @property
    def _sharded(self) -> bool:
        return self.spec.training.shard == "optimizer"

    @property
    def num_parameters(self) -> int:
        degree = self.spec.parallel.tensor
        own = sum(
            p.numel() * (degree if is_split(p) else 1)
            for name, p in self._named.items()
            if name != "output_layer.weight"
        )
        total = torch.tensor(own, device=self.place.device)
        dist.all_reduce(total, group=self._groups.pp)
        return int(total)

    @property
    def dense_bytes(self) -> int:
        return 4 * sum(math.prod(shape) for shape in self.shapes.values()) if self.spec.parallel.data > 1 else 0

    @property
    def group(self) -> dist.ProcessGroup:
        return self._data_parallel.group

    def held(self) -> Held:
        codecs = (self._p2p._forward, self._p2p._backward)
        buffers: Any = self.model.buffers  # a list of megatron's, in place of torch's method
        return {
            "parameters": self.model.parameters(),
            "gradients": [buffer.grad_data for buffer in buffers],
            "optimizer": kept(self.optimizer, self._gathers),
            "method": inside((self.synchronisation, codecs)),
            "other": self.model.module.buffers(),
        }

    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[torch.Tensor, float]:
        """The norm is the one that all ranks agree on (`Synchronisation.agreed_norm`)."""
        self.model.train()
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        self._step, self._forwards_left, self.replica.lr = step, len(micro_batches), lr
        self.synchronisation.begin_step(step, self.replica)
        with self.clock.region("forward"), _backward_region(self.clock):
            losses = self._run_schedule(micro_batches, forward_only=False)
        with self.clock.region("optimizer"):
            self._updates.set_rate(lr)
            # megatron's `optimizer.step()` in its parts, to look at the norm before anything is changed by it
            self.optimizer.prepare_grads()
            grad_norm = self._updates.clip(self.synchronisation.own)
            if math.isfinite(grad_norm) and self._update is Update.OPTIMIZER:
                if self._shards is not None:
                    self._shards.restore()
                self.optimizer.step_with_ready_grads()
                self.synchronisation.update(step, self.replica)
        agreed = self.synchronisation.agreed_norm(step, grad_norm)
        if math.isfinite(agreed):
            self.synchronisation.after_optimizer(step, self.replica)
        return losses, agreed

    def end_step(self, loss: torch.Tensor) -> list[dict[str, Any]]:
        return self.synchronisation.end_step(self._step, loss)

    def evaluate(self, batches: Sequence[np.ndarray]) -> float:
        self.model.eval()
        with torch.no_grad(), self.synchronisation.synchronised(self.replica):
            losses = torch.stack([self._run_schedule(batch, forward_only=True) for batch in batches])
        total = torch.zeros(2, device=self.place.device)
        if self.place.last_stage:
            total = torch.stack([losses.sum(), losses.new_tensor(float(len(losses)))])
        dist.all_reduce(total)
        self.ledger.forget()  # an evaluation's traffic between stages is not the next step's
        return float(total[0] / total[1])

    def _run_schedule(self, micro_batches: np.ndarray, forward_only: bool) -> torch.Tensor:
        self._p2p.training = not forward_only
        results = self._schedule(
            forward_step_func=_forward_step if forward_only else self._training_forward_step,
            data_iterator=self._device_batches(micro_batches),
            model=self.model,
            num_microbatches=len(micro_batches),
            seq_length=self.spec.model.seq_length,
            micro_batch_size=micro_batches.shape[1],
            forward_only=forward_only,
            p2p_communicator=self._p2p if self.place.num_stages > 1 else None,
            pg_collection=self._groups if self.place.num_stages > 1 else None,
        )
        if not results:  # only the last stage has a loss
            return torch.zeros((), device=self.place.device)
        return torch.stack([r["loss"] for r in results]).mean()

    def _training_forward_step(
        self, batches: Iterator[torch.Tensor], model: torch.nn.Module
    ) -> tuple[torch.Tensor, Any]:
        done = _forward_step(batches, model)
        self._forwards_left -= 1
        if not self._forwards_left:
            self.synchronisation.forward_done()
        return done

    def _device_batches(self, micro_batches: np.ndarray) -> Iterator[torch.Tensor]:
        for tokens in list(micro_batches):
            yield torch.from_numpy(np.ascontiguousarray(tokens)).to(self.place.device, non_blocking=True)

    def state_dict(self) -> dict[str, Any]:
        return self.synchronisation.state_dict() | {
            "model": {name: parameter.detach() for name, parameter in self._named.items()},
            "split": {name: p.partition_dim for name, p in self._named.items() if is_split(p)},  # type: ignore[attr-defined]
            "optimizer": (self._shards or self.optimizer).state_dict(),
            "pipeline": self._p2p.state_dict(),
            "rng": random_state(self.place.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, parameter in self._named.items():
                parameter.copy_(state["model"][name])
        (self._shards or self.optimizer).load_state_dict(state["optimizer"])
        self.synchronisation.load_state_dict(state)
        self._p2p.load_state_dict(state["pipeline"])
        set_random_state(state["rng"])


def _forward_step(batches: Iterator[torch.Tensor], model: torch.nn.Module) -> tuple[torch.Tensor, Any]:
    tokens = next(batches)
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    positions = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
    output = model(inputs, positions, None, labels=labels)

    def mean_loss(losses: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss = losses.float().mean()
        return loss, {"loss": loss.detach().clone()}  # the schedule divides `loss` in place

    return output, mean_loss


@contextmanager
def _backward_region(clock: StepClock) -> Iterator[None]:
    """Charge every `backward_step` of megatron's schedules inside to the region `backward`.

    The last one of a step is EDGC's T_mb: the later stages are done by then, so where stages share a machine's cores
    it is shorter than the others. Forward passes stay in the caller's region; an exchange that starts during backward
    has its own, and so has waiting for other stages (`pipeline.BUBBLE`).
    """
    plain = schedules.backward_step

    def timed(*arguments: Any, **options: Any) -> Any:
        with clock.region("backward"):
            return plain(*arguments, **options)

    schedules.backward_step = timed
    try:
        yield
    finally:
        schedules.backward_step = plain
