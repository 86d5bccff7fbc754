"""What a synchronisation sees of this rank's part of a megatron model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.comm import Communicator
from edgc.suite.backends.megatron.optimizer import Optimizer
from edgc.suite.config.model import TIED


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
