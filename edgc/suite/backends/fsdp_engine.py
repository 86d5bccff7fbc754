"""The plain loop under FSDP2: every rank keeps its share of parameters, gradients and moments (ZeRO-3)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from transformers import GPT2LMHeadModel

from edgc.hooks.any_loop import Costs, LoopExchange
from edgc.hooks.torch_fsdp import compress
from edgc.suite.backends.plain_engine import PlainEngine


class FSDPEngine(PlainEngine):
    """Each layer is gathered for its forward and again for its backward; the rest of the model for both at once.

    The ledger counts what is gathered, whatever it is rounded to (`training.parameter_wire`).
    """

    def distribute(self, module: GPT2LMHeadModel, costs: Costs | None) -> tuple[Any, LoopExchange | None]:
        mesh = DeviceMesh.from_group(self.group, "cpu")
        for layer in module.transformer.h:
            fully_shard(layer, mesh=mesh)
        model = fully_shard(module, mesh=mesh)
        t = self.spec.training
        options: dict[str, Any] = {"iterations": t.iterations, "seed": self.spec.seed, "costs": costs}
        return model, compress(model, self.spec.method, parameter_wire=t.parameter_wire, **options)

    def accumulates(self, last: bool) -> AbstractContextManager[Any]:
        self.model.set_requires_gradient_sync(last)
        return nullcontext()

    def norm_of_all(self, own: Tensor) -> Tensor:
        square = own.double() ** 2
        dist.all_reduce(square, group=self.group)
        return square.sqrt()

    def rest(self) -> None:
        self.model.reshard()
