"""Deep Gradient Compression: the threshold is that of a sample (arXiv 1712.01887, section 3).

What the paper has beside it: the falling ratio of the first epochs is the policy `falling_ratio`. Gradients are clipped
after the exchange, as everywhere in this project, not on every rank by N^−½ (section 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import Law, NamedTensor
from edgc.core.aggregators.coded import stream
from edgc.core.aggregators.residuals import Residuals
from edgc.core.aggregators.topk import SparseSettings, TopK, TopKGroup
from edgc.core.aggregators.workload import Kernel, Shape, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.noise import bits
from edgc.core.ops.select import Pool, Selection, above, chosen_by
from edgc.core.policies.amounts import Amount

LEAST = 32  #: elements of a sample that pass, so that the threshold of a small tensor's is not chance
AIM = 1.5  #: how many times k are meant to pass: of too many the largest are taken, too few are filled up


class DGCSettings(SparseSettings):
    """How large the sample is, and whose momentum it is."""

    name: Literal["dgc"]
    sample: float = Field(0.01, gt=0, le=1, description="Share of the elements that the threshold is found among")
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Momentum that every rank keeps of its own gradients, 0 where an element was sent (section 3.2). "
        "It replaces that of an SGD optimizer; Adam has its own, so leave it 0 with Adam",
    )

    @property
    def laws(self) -> set[Law]:
        """What was sent before is sent again as momentum, so with momentum nothing is conserved."""
        return set() if self.momentum else super().laws


class DGC(TopK):
    """As Top-K, among elements above the sample's threshold; with momentum U: U ← momentum·U + G, M ← U + E.

    The threshold is one that lets a little too many pass; k of them are selected: the paper's hierarchical selection.
    """

    Settings = DGCSettings
    state_size: ClassVar[str] = "numel (error feedback) per tensor, as much again with momentum"

    def __init__(self, settings: Any, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self.state["momenta"] = self._momenta = Residuals()

    def pool(self, group: TopKGroup, by_name: Mapping[str, NamedTensor]) -> Pool:
        pool = super().pool(group, by_name)
        if not self.settings.momentum:
            return pool
        momentum = self._momenta.memory(by_name[group.piece.name]).view(-1)
        return Pool(momentum.mul_(self.settings.momentum).add_(pool.grad), pool.error, group.k)

    def choose(self, pools: Sequence[Pool], groups: Sequence[TopKGroup], step: int) -> list[Selection]:
        chosen = []
        for pool, group in zip(pools, groups, strict=True):
            drawn = stream(f"{group.piece.name}/{step}")
            selection = chosen_by(pool, lambda whole, k=group.k, drawn=drawn: self._largest(whole, k, drawn))
            if self.settings.momentum:
                pool.grad[selection.indices] = 0
            chosen.append(selection)
        return chosen

    def _largest(self, whole: Tensor, k: int, drawn: int) -> Tensor:
        magnitude = whole.abs().nan_to_num_(nan=torch.inf, posinf=torch.inf)  # what diverged is sent
        share = min(1.0, AIM * k / len(magnitude))
        size = min(len(magnitude), ceil(max(LEAST / share, self.settings.sample * len(magnitude))))
        if size == len(magnitude):
            sample = magnitude
        else:
            places = (bits(self.seed, drawn, size, whole.device).long() & 0xFFFFFFFF) * len(magnitude) >> 32
            sample = magnitude[places]
        threshold = sample.topk(ceil(share * size)).values[-1]
        return above(magnitude, threshold, k)

    def looks(self, numel: int, itemsize: int) -> Sequence[Kernel]:
        """M is read three times and its marks twice; momentum is read and written."""
        momentum = (memory_passes(numel, 5, max(4, itemsize)),) if self.settings.momentum else ()
        return *momentum, memory_passes(numel, 4, max(4, itemsize)), memory_passes(numel, 4, 1)

    def kept_bytes(self, shape: Shape, amount: Amount, itemsize: int) -> int:
        return super().kept_bytes(shape, amount, itemsize) + itemsize * prod(shape) * bool(self.settings.momentum)
