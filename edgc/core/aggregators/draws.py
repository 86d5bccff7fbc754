"""Random numbers that depend on a seed, a step and a name only: equal on all ranks that ask alike."""

from __future__ import annotations

import hashlib

from edgc.core.base.lazy import Tensor, torch


def generator(seed: int, step: int, name: str) -> torch.Generator:
    """On the CPU: the same numbers whatever the device is. A rank's own numbers have its number in `name`."""
    digest = hashlib.sha256(f"{seed}/{step}/{name}".encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:7], "big"))


def draw(seed: int, step: int, name: str, rows: int, columns: int, like: Tensor) -> Tensor:
    """N(0, 1), rows×columns, in the precision and on the device of `like`."""
    drawn = torch.randn(rows, columns, generator=generator(seed, step, name), dtype=like.dtype, device="cpu")
    return drawn.to(like.device)
