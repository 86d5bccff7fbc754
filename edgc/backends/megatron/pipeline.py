"""Traffic between pipeline stages: megatron's communicator, with a codec a direction, charged to the ledger."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator, _batched_p2p_ops
from megatron.core.transformer.transformer_config import TransformerConfig

from edgc.link_codecs import PipelineTraffic, build
from edgc.telemetry import Ledger

PIPELINE = "pipeline"  # the ledger's tag of what is sent, and the clock's region of encoding and decoding
BUBBLE = "bubble"  # the clock's region of waiting for other stages, and for what they send


class ChargedP2P(P2PCommunicator):
    """All stage-to-stage traffic goes through `_communicate`: the place to compress and to charge.

    What goes to the next stage is an activation (`traffic.forward`), what goes to the previous one its gradient
    (`traffic.backward`). Without a codec the path is megatron's own.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        config: TransformerConfig,
        ledger: Ledger,
        traffic: PipelineTraffic,
        seed: int = 0,
    ) -> None:
        super().__init__(pp_group=group, config=config)
        self._ledger, self._traffic = ledger, traffic
        self._forward = build(traffic.forward, "forward", group.rank(), seed)
        self._backward = build(traffic.backward, "backward", group.rank(), seed)
        #: False in evaluation, on all ranks alike: nothing is compressed, and the codecs' state stays as it is
        self.training = True

    def _communicate(self, **call: Any) -> Any:
        with self._ledger.clock.region(BUBBLE):
            if self.training and self._traffic.compresses:
                return self._communicate_encoded(**call)
            self._charge(call["tensor_send_next"], call["tensor_send_prev"])
            return super()._communicate(**call)

    @torch.no_grad()
    def _communicate_encoded(
        self,
        *,
        tensor_send_next: torch.Tensor | None,
        tensor_send_prev: torch.Tensor | None,
        recv_prev: bool,
        recv_next: bool,
        tensor_shape: Any,
        wait_on_reqs: bool = True,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        """megatron's exchange, of messages whose sizes differ by direction: up to four, launched as one batch."""
        assert self.config.batch_p2p_comm
        assert wait_on_reqs
        kind, on = self.config.pipeline_dtype, torch.cuda.current_device()
        with self._ledger.clock.region(PIPELINE):
            to_next = None if tensor_send_next is None else self._forward.encode(tensor_send_next)
            to_prev = None if tensor_send_prev is None else self._backward.encode(tensor_send_prev)
        from_prev = self._forward.buffer(tensor_shape, kind, on) if recv_prev else None
        from_next = self._backward.buffer(tensor_shape, kind, on) if recv_next else None
        self._charge(to_next, to_prev)
        requests = _batched_p2p_ops(
            tensor_send_prev=to_prev,
            tensor_recv_prev=from_prev,
            tensor_send_next=to_next,
            tensor_recv_next=from_next,
            group=self.pp_group,
            prev_pipeline_rank=self.prev_rank,  # type: ignore[arg-type]
            next_pipeline_rank=self.next_rank,  # type: ignore[arg-type]
        )
        for request in requests:
            request.wait()
        with self._ledger.clock.region(PIPELINE):
            activation = None if from_prev is None else self._forward.decode(from_prev, tensor_shape, kind)
            gradient = None if from_next is None else self._backward.decode(from_next, tensor_shape, kind)
        for received in (activation, gradient):
            if received is not None:
                received.requires_grad_()  # as megatron's are: the schedule reads the activation's gradient
        return activation, gradient, None

    def _charge(self, *sent: torch.Tensor | None) -> None:
        for tensor in sent:
            if tensor is not None:
                size = tensor.numel() * tensor.element_size()
                self._ledger.charge(PIPELINE, size, size)

    def state_dict(self) -> dict[str, Any]:
        """What this stage's senders remember: error feedback and warm factors."""
        return {"forward": self._forward.state_dict(), "backward": self._backward.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._forward.load_state_dict(state["forward"])
        self._backward.load_state_dict(state["backward"])
