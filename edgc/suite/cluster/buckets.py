"""Which parameters' gradients are exchanged together, in the order in which backward makes them ready."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from math import prod

from edgc.suite.cluster.parameters import Shape

LAYERS = "decoder.layers."


def fill(shapes: Mapping[str, Shape], full: int) -> list[dict[str, Shape]]:
    """Buckets of at least `full` parameters (the last may have fewer), as megatron fills them, from the last one on."""
    buckets: list[dict[str, Shape]] = []
    filled = full
    for name, shape in reversed([*shapes.items()]):
        if filled >= full:
            buckets.append({})
            filled = 0
        buckets[-1][name] = shape
        filled += prod(shape)
    return buckets


def units(shapes: Mapping[str, Shape]) -> list[dict[str, Shape]]:
    """What FSDP2 shards as one: each layer, from the last to the first, then all that is in no layer (the root)."""
    layers = [name for name in shapes if name.startswith(LAYERS)]
    by_layer = groupby(reversed(layers), key=lambda name: name[len(LAYERS) :].split(".")[0])
    root = {name: shape for name, shape in shapes.items() if not name.startswith(LAYERS)}
    return [*({name: shapes[name] for name in own} for _, own in by_layer), root]
