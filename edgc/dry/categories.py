"""Whose memory it is: the tensors of an engine by category."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

#: In this order: a tensor counts for the first that it is found in. `activations` is what is left at the peak, with
#: temporary buffers.
CATEGORIES = ("parameters", "gradients", "optimizer", "method", "activations")


def tensors(engine: Any) -> dict[str, Iterator[torch.Tensor]]:
    """The tensors of a `MegatronEngine` that stay from step to step."""
    return {
        "parameters": engine.model.parameters(),
        "gradients": (buffer.grad_data for buffer in engine.model.buffers),
        "optimizer": _of_optimizer(engine.optimizer),
        "method": _inside(
            (engine.exchange.aggregator, engine.synchronisation, engine._p2p._forward, engine._p2p._backward)
        ),
    }


def _of_optimizer(optimizer: Any) -> Iterator[torch.Tensor]:
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        yield from _inside((dict(one.optimizer.state), [group["params"] for group in one.param_groups]))
        yield from _inside(getattr(one, "fp32_from_float16_groups", []))


def _inside(what: Any, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """All tensors that containers, and objects of this package, hold."""
    seen = set() if seen is None else seen
    if id(what) in seen:
        return
    seen.add(id(what))
    if isinstance(what, torch.Tensor):
        yield what
    elif isinstance(what, Mapping):
        for value in what.values():
            yield from _inside(value, seen)
    elif isinstance(what, (list, tuple, set)):
        for value in what:
            yield from _inside(value, seen)
    elif type(what).__module__.startswith("edgc.") and hasattr(what, "__dict__"):
        yield from _inside(vars(what), seen)
