"""Traffic between pipeline stages: megatron's communicator, with a codec a direction, charged to the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
from megatron.core.transformer.transformer_config import TransformerConfig

from edgc.core.comm.telemetry import Ledger
from edgc.core.exchange.link_codecs import LinkCodec, PipelineTraffic, build

PIPELINE = "pipeline"  # the ledger's tag of what is sent, and the clock's region of encoding and decoding
BUBBLE = "bubble"  # the clock's region of waiting for other stages, and for what they send
AS_IT_IS = LinkCodec()


class ChargedP2P(P2PCommunicator):
    """All stage-to-stage traffic goes through `_communicate`: the place to compress and to charge.

    What goes to the next stage is an activation (`traffic.forward`), what goes to the previous one its gradient
    (`traffic.backward`).
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
        self._ledger, self._compresses = ledger, traffic.compresses
        self._build = partial(_codecs, traffic, group.rank(), seed)
        self._forward, self._backward = self._build()
        #: False in evaluation, on all ranks alike: nothing is compressed, and the codecs' state stays as it is
        self.training = True

    @torch.no_grad()
    def rehearse(self, shape: Sequence[int], device: torch.device) -> None:
        """Encode zeros of a message's shape each way, by codecs made for this alone: kernels are compiled here."""
        for codec in self._build():
            codec.encode(torch.zeros(*shape, dtype=self.config.pipeline_dtype, device=device))

    @torch.no_grad()
    def _communicate(
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
        forward, backward = (self._forward, self._backward) if self.training else (AS_IT_IS, AS_IT_IS)
        kind, on = self.config.pipeline_dtype, torch.cuda.current_device()
        with self._ledger.clock.region(BUBBLE):
            with self._coding():
                to_next = None if tensor_send_next is None else forward.encode(tensor_send_next)
                to_prev = None if tensor_send_prev is None else backward.encode(tensor_send_prev)
            from_prev = forward.buffer(tensor_shape, kind, on) if recv_prev else None
            from_next = backward.buffer(tensor_shape, kind, on) if recv_next else None
            for sent in (to_next, to_prev):
                if sent is not None:
                    self._ledger.charge(PIPELINE, sent.nbytes, sent.nbytes)
            self._exchange(to_next, to_prev, from_prev, from_next)
            with self._coding():
                activation = None if from_prev is None else forward.decode(from_prev, tensor_shape, kind)
                gradient = None if from_next is None else backward.decode(from_next, tensor_shape, kind)
        for received in (activation, gradient):
            if received is not None:
                received.requires_grad_()  # as megatron's are: the schedule reads the activation's gradient
        return activation, gradient, None

    def _exchange(
        self,
        to_next: torch.Tensor | None,
        to_prev: torch.Tensor | None,
        from_prev: torch.Tensor | None,
        from_next: torch.Tensor | None,
    ) -> None:
        """Send and receive what there is, and wait for it.

        Receiving comes first, unlike in megatron. A sender over gloo waits to be told that its message is awaited; told
        after this side's own message has gone ahead on the link, both directions would follow one another: on a slow
        link an exchange would take twice as long. Where both neighbours are one rank, messages match in this order.
        """
        operations = [
            dist.P2POp(operation, message, peer, self.pp_group)
            for operation, message, peer in (
                (dist.irecv, from_next, self.next_rank),
                (dist.irecv, from_prev, self.prev_rank),
                (dist.isend, to_prev, self.prev_rank),
                (dist.isend, to_next, self.next_rank),
            )
            if message is not None
        ]
        for request in dist.batch_isend_irecv(operations) if operations else ():
            request.wait()

    def _coding(self) -> AbstractContextManager[None]:
        """The clock's region of codecs, where there are any."""
        coded = self.training and self._compresses
        return self._ledger.clock.region(PIPELINE) if coded else nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """What this stage's senders remember: error feedback and warm factors."""
        return {"forward": self._forward.state_dict(), "backward": self._backward.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._forward.load_state_dict(state["forward"])
        self._backward.load_state_dict(state["backward"])


def _codecs(traffic: PipelineTraffic, stage: int, seed: int) -> tuple[LinkCodec, LinkCodec]:
    """Those that a stage sends through: to the next one, and to the one before."""
    return build(traffic.forward, "forward", stage, seed), build(traffic.backward, "backward", stage, seed)
