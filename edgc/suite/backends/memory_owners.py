"""Whose memory it is: the tensors that an engine keeps from step to step, by category, and their bytes on this rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from edgc.core.comm.telemetry import HELD

Held = Mapping[str, Iterable[torch.Tensor]]  #: by category, of `HELD`


def sizes(held: Held) -> dict[str, int]:
    """Bytes of the memory that these tensors lie in, padding included, by category.

    What several share counts once, for the first category that it is found in.
    """
    counted: set[int] = set()
    found: dict[str, int] = dict.fromkeys(HELD, 0)
    for category in HELD:
        for tensor in held[category]:
            storage = local(tensor).untyped_storage()
            if storage.data_ptr() not in counted:
                counted.add(storage.data_ptr())
                found[category] += storage.nbytes()
    return found


def inside(what: Any, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """All tensors that containers, and objects of this package, hold."""
    seen = set() if seen is None else seen
    if id(what) in seen:
        return
    seen.add(id(what))
    if isinstance(what, torch.Tensor):
        yield what
    elif isinstance(what, Mapping):
        for value in what.values():
            yield from inside(value, seen)
    elif isinstance(what, (list, tuple, set)):
        for value in what:
            yield from inside(value, seen)
    elif type(what).__module__.startswith("edgc.") and hasattr(what, "__dict__"):
        yield from inside(vars(what), seen)


def local(tensor: Any) -> torch.Tensor:
    """What this rank has of a tensor that may be sharded; shares its memory."""
    with torch.no_grad():
        return tensor.to_local() if hasattr(tensor, "to_local") else tensor.detach()
