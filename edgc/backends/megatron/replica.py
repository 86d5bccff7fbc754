"""What a synchronisation sees of this rank's part of a megatron model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from edgc.aggregators.aggregator import NamedTensor
from edgc.comm import Communicator


class MegatronReplica:
    """Parameters as megatron's optimizer updates them: its fp32 copies where the model's own are bf16.

    Args:
        named: the exchanged parameters. buckets: the memory of their gradients.
        tied: the gradient of the embedding that the first and the last stage share; `embedding`: the group of those
            two stages. None on other stages, and where there is one stage.
    """

    def __init__(
        self,
        named: Mapping[str, torch.nn.Parameter],
        buckets: Sequence[Sequence[NamedTensor]],
        optimizer: Any,
        tied: torch.Tensor | None,
        embedding: Communicator | None,
    ) -> None:
        self._optimizer, self._tied, self._embedding = optimizer, tied, embedding
        self._copied = any(hasattr(parameter, "main_param") for parameter in named.values())  # megatron's attribute
        values = {n: p.main_param if self._copied else p for n, p in named.items()}  # type: ignore[attr-defined]
        self.parameters: Mapping[str, torch.Tensor] = {name: value.detach() for name, value in values.items()}
        self.buckets: Sequence[Sequence[NamedTensor]] = buckets

    def changed(self) -> None:
        """Round the fp32 copies into the model's parameters, where it has others."""
        if self._copied:
            self._optimizer._copy_main_params_to_model_params()

    def tie(self) -> None:
        """Give both stages' copies of the embedding the mean of what they hold."""
        if self._embedding is None or self._embedding.size == 1:
            return
        assert self._tied is not None
        with self._embedding.ledger.clock.region("embedding"):
            self._tied.div_(self._embedding.size)
            self._embedding.all_reduce(self._tied, tag="embedding").wait()
