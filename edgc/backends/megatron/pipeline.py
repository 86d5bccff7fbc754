"""Traffic between pipeline stages: megatron's communicator, with its bytes charged to the ledger."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
from megatron.core.transformer.transformer_config import TransformerConfig

from edgc.telemetry import Ledger

PIPELINE = "pipeline"


class ChargedP2P(P2PCommunicator):
    """All stage-to-stage traffic goes through `_communicate`: the place to charge, and later to compress."""

    def __init__(self, group: dist.ProcessGroup, config: TransformerConfig, ledger: Ledger) -> None:
        super().__init__(pp_group=group, config=config)
        self._ledger = ledger

    def _communicate(
        self, *, tensor_send_next: torch.Tensor | None, tensor_send_prev: torch.Tensor | None, **rest: Any
    ) -> Any:  # type: ignore[override]
        for tensor in (tensor_send_next, tensor_send_prev):
            if tensor is not None:
                sent = tensor.numel() * tensor.element_size()
                self._ledger.charge(PIPELINE, sent, sent)
        return super()._communicate(tensor_send_next=tensor_send_next, tensor_send_prev=tensor_send_prev, **rest)
