"""What updates parameters under megatron: its AdamW, or Muon on hidden matrices beside it; less what a method updates.

A method's own parameters (`Synchronisation.own`) have no gradient when the optimizer steps, so it leaves them alone.
`MegatronReplica` is what a synchronisation sees of all this.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.optimizer import ChainedOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params, FP32Optimizer

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.comm import Communicator
from edgc.core.synchronisation.dion import is_hidden
from edgc.core.synchronisation.synchronisation import AdamState
from edgc.suite.backends.optimizers import muon
from edgc.suite.config import Training
from edgc.suite.config.model import TIED


class Optimizer:
    """megatron's chained optimizer (`chained`), and what a step and a synchronisation need of it by parameter name."""

    def __init__(self, training: Training, model: Any, named: Mapping[str, torch.nn.Parameter]) -> None:
        """`named`: this stage's parameters by their names in the whole model; `model`: megatron's DDP over them."""
        self._training = training
        hidden = [p for name, p in named.items() if is_hidden(name, tuple(p.shape))]
        self.chained: Any = _build(training, model, hidden if training.optimizer == "muon" else [])
        held = {
            id(p): (inner.optimizer, group, p)
            for inner in self.chained.chained_optimizers
            for group in inner.optimizer.param_groups
            for p in group["params"]
        }
        #: By name: torch's optimizer, its group, and the parameter as it updates it. Not of sharded ones.
        self._places = {
            name: held[key] for name, p in named.items() if (key := id(getattr(p, "main_param", p))) in held
        }

    def set_rate(self, lr: float) -> None:
        """What megatron's OptimizerParamScheduler would set."""
        for group in self.chained.param_groups:
            group["lr"] = lr * group.get("lr_mult", 1.0)
            group["weight_decay"] = self._training.weight_decay * group.get("wd_mult", 1.0)

    def clip(self, own: Collection[str]) -> float:
        """Clip the gradients that the optimizer takes, by their joint norm. Returns the norm of all. Collective.

        Of `own` parameters gradients are not clipped: their memory holds what was exchanged in the gradients' place.
        """
        norm = everything = float(self.chained.get_grad_norm())
        if own:
            for name in own:
                self._places[name][2].grad = None
            norm = float(self.chained.get_grad_norm())
        if self._training.clip and math.isfinite(norm):
            for part in self.chained.chained_optimizers:
                clipped = [p for p in part.get_parameters() if p.grad is not None]
                if clipped:
                    clip_grad_by_total_norm_fp32(clipped, self._training.clip, norm)
        return everything

    def weight_decay(self, name: str) -> float:
        """Of this parameter: none of a vector's."""
        return self._training.weight_decay * self._places[name][1].get("wd_mult", 1.0)

    def adam(self, name: str) -> AdamState | None:
        """AdamW's state of a parameter, not copied; None before its first step."""
        inner, group, parameter = self._places[name]
        state = inner.state.get(parameter)
        if not state:
            return None
        beta1, beta2 = group["betas"]
        return AdamState(state["exp_avg"], state["exp_avg_sq"], beta1, beta2, group["eps"])


class MegatronReplica:
    """Parameters as megatron's optimizer updates them: its fp32 copies where the model's own are bf16.

    Args:
        named: the exchanged parameters. buckets: the memory of their gradients.
        tied: the gradient of the embedding that the first and the last stage share; `embedding`: the group of those
            two stages. None on other stages, and where there is one stage.
        updates: what updates `named`.
    """

    def __init__(
        self,
        named: dict[str, torch.nn.Parameter],
        buckets: Sequence[Sequence[NamedTensor]],
        tied: torch.Tensor | None,
        embedding: Communicator | None,
        updates: Optimizer,
    ) -> None:
        self._tied, self._embedding = tied, embedding
        self.weight_decay, self.adam = updates.weight_decay, updates.adam
        self.lr = 0.0
        # megatron's attributes: an fp32 copy; of sharded ones this rank's part only, which nobody changes from here
        copied = {n: p for n, p in named.items() if hasattr(p, "main_param") and not hasattr(p, "main_param_sharded")}
        values = named | {n: p.main_param for n, p in copied.items()}  # type: ignore[attr-defined]
        self.parameters: Mapping[str, torch.Tensor] = {name: value.detach() for name, value in values.items()}
        self.buckets: Sequence[Sequence[NamedTensor]] = buckets
        self._rounded = {name: parameter.detach() for name, parameter in copied.items()}

    def stages_of(self, name: str) -> int:
        """Two for the embedding that two stages share."""
        return 2 if self._tied is not None and name in TIED else 1

    def changed(self) -> None:
        """Round the fp32 copies into the model's parameters, where it has others."""
        for name, parameter in self._rounded.items():
            parameter.copy_(self.parameters[name])

    def tie(self) -> None:
        """Give both stages' copies of the embedding the mean of what they hold."""
        if self._embedding is None or self._embedding.size == 1:
            return
        assert self._tied is not None
        with self._embedding.ledger.clock.region("embedding"):
            self._tied.div_(self._embedding.size)
            self._embedding.all_reduce(self._tied, tag="embedding").wait()


def _build(training: Training, model: Any, matrices: list[torch.nn.Parameter]) -> ChainedOptimizer:
    """megatron's AdamW; of all but `matrices`, if there are any, and Muon of these."""
    config = _config(training)
    parts = [_muon(training, config, matrices)] if matrices else []
    for parameter in matrices:  # megatron makes AdamW of what wants gradients
        parameter.requires_grad = False
    adamw: Any = get_megatron_optimizer(config, [model], use_gloo_process_groups=False)  # type: ignore[list-item]
    for parameter in matrices:
        parameter.requires_grad = True
    for group in adamw.param_groups:
        group["fused"] = True  # for torch's AdamW, which megatron takes where no other fused one is installed
    return ChainedOptimizer([*parts, *adamw.chained_optimizers]) if parts else adamw


def _muon(training: Training, config: OptimizerConfig, matrices: list[torch.nn.Parameter]) -> Any:
    """As megatron's `get_megatron_muon_optimizer` wraps it, around torch's Muon: megatron's own is no dependency."""
    # megatron finds groups by these settings
    inner = muon(training, matrices, wd_mult=1.0, is_expert_parallel=False, is_decoupled_lr=False)

    def unused(*_: Any) -> None:  # for megatron's own format of checkpoints
        raise NotImplementedError

    wrapped: Any = (
        Float16OptimizerWithFloat16Params(inner, config, None, unused)  # type: ignore[arg-type]
        if config.bf16
        else FP32Optimizer(inner, config, unused)
    )
    wrapped.grad_stats_parallel_group = parallel_state.get_model_parallel_group()
    wrapped.tp_group = parallel_state.get_tensor_model_parallel_group()
    return wrapped


def _config(t: Training) -> OptimizerConfig:
    return OptimizerConfig(
        optimizer="adam",
        lr=t.lr,
        min_lr=t.min_lr,
        weight_decay=t.weight_decay,
        adam_beta1=t.beta1,
        adam_beta2=t.beta2,
        adam_eps=t.eps,
        clip_grad=t.clip,
        bf16=t.precision == "bf16",
        params_dtype=torch.bfloat16 if t.precision == "bf16" else torch.float32,
        use_distributed_optimizer=t.shard == "optimizer",
    )
