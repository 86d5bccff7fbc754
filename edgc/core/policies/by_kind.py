"""Kinds of parameters by their names, as megatron, GPT-2 and most others name them, and amounts by kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from edgc.core.policies.amounts import DENSE, Amount, Bits, Rank, Ratio
from edgc.core.policies.policy import Decision

Kind = Literal["attention", "mlp", "expert", "router", "embedding"]
#: Parts of names; the first kind that has one in a name is its kind.
PARTS: Mapping[Kind, tuple[str, ...]] = {
    "expert": ("experts.",),
    "router": ("router",),
    "embedding": ("embed", "wte", "wpe", "output_layer", "lm_head"),
    "attention": ("attn.", "attention."),
    "mlp": ("mlp.", "ffn.", "feed_forward."),
}


def kind_of(name: str) -> Kind | None:
    """A parameter's kind; None: it has none of these."""
    return next((kind for kind, parts in PARTS.items() if any(part in name for part in parts)), None)


def placed(decision: Decision, names: Iterable[str], scale: Mapping[Kind, float]) -> Decision:
    """The decision for parameters `names`, with amounts times `scale` of their kinds; all others travel dense."""
    by: Mapping[Kind | None, float] = {**scale}
    return Decision(DENSE, {name: scaled(decision.amount(name), by.get(kind_of(name), 1.0)) for name in names})


def scaled(amount: Amount, by: float) -> Amount:
    """A rank or bits, rounded, at least 1, bits at most 32; a ratio, at most 1. What has no number stays as it is."""
    if by == 1.0:
        return amount
    if isinstance(amount, Ratio):
        return Ratio(min(1.0, by * amount))
    if isinstance(amount, Bits):
        return Bits(min(32, max(1, round(by * amount))))
    return Rank(max(1, round(by * amount))) if isinstance(amount, Rank) else amount
