"""Traffic between pipeline stages: megatron's communicator, with its bytes charged to the ledger."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.transformer_config import TransformerConfig

from edgc.telemetry import Ledger

PIPELINE = "pipeline"


class ChargedP2P(P2PCommunicator):
    """All stage-to-stage traffic goes through `_communicate`: the place to charge, and later to compress."""

    def __init__(self, config: TransformerConfig, ledger: Ledger) -> None:
        super().__init__(pp_group=parallel_state.get_pipeline_model_parallel_group(), config=config)
        self._ledger = ledger

    def _communicate(self, *, tensor_send_next: torch.Tensor | None, tensor_send_prev: torch.Tensor | None, **rest: Any) -> Any:  # type: ignore[override]
        for tensor in (tensor_send_next, tensor_send_prev):
            if tensor is not None:
                sent = tensor.numel() * tensor.element_size()
                self._ledger.charge(PIPELINE, sent, sent)
        return super()._communicate(tensor_send_next=tensor_send_next, tensor_send_prev=tensor_send_prev, **rest)


def pipeline_groups() -> ProcessGroupCollection:
    """The groups that megatron's schedules want beside a communicator of one's own."""
    groups = ProcessGroupCollection()
    groups.tp = parallel_state.get_tensor_model_parallel_group()
    groups.pp = parallel_state.get_pipeline_model_parallel_group()
    groups.cp = parallel_state.get_context_parallel_group()
    groups.embd = parallel_state.get_embedding_group(check_initialized=False)
    groups.pos_embd = parallel_state.get_position_embedding_group(check_initialized=False)
    groups.dp_cp = parallel_state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=False)
    return groups
