"""SIDCo: the threshold comes from a distribution that is fitted to the magnitudes (arXiv 2101.10761).

A fit of the whole tensor is bad far out, so it is made in stages (section 2.4): each fits what lies above the stage
before's threshold, and asks for at least a quarter of it. The paper changes the number of stages when a step's share
was more than a fifth off. Here the share that passes is counted after each stage, so a tensor's stages end when it is
within a fifth; after a stage that let too few pass, the next threshold lies between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from edgc.core.aggregators.topk import SparseSettings, TopK, TopKGroup
from edgc.core.aggregators.workload import Kernel, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.select import Pool, Selection, above, chosen_by

STAGE = 0.25  #: the smallest share that one stage leaves of what the stage before left
NEAR = 0.2  #: how far from the wanted share is near enough
TYPICAL_STAGES = 4  #: what gradients take, for the workload


class SIDCoSettings(SparseSettings):
    """What magnitudes are fitted by."""

    name: Literal["sidco"]
    fit: Literal["exponential"] = Field("exponential", description="SIDCo-E; the paper's other fits are left out")
    stages: int = Field(8, ge=1, le=32, description="At most so many stages; a tensor stops when it is near enough")


class SIDCo(TopK):
    """As Top-K, but the k elements are those above a fitted threshold: no selection, no sorting."""

    Settings = SIDCoSettings

    def choose(self, pools: Sequence[Pool], groups: Sequence[TopKGroup], step: int) -> list[Selection]:
        return [chosen_by(pool, lambda whole, k=pool.k: self._largest(whole, k)) for pool in pools]

    def _largest(self, whole: Tensor, k: int) -> Tensor:
        magnitude = whole.abs().nan_to_num_(nan=torch.inf, posinf=torch.inf)  # what diverged is sent
        return above(magnitude, fitted(magnitude, k / len(magnitude), self.settings.stages), k)

    def looks(self, numel: int, itemsize: int) -> Sequence[Kernel]:
        """Each stage reads M six times; what passes is marked, and marks are read twice."""
        read = 6 * min(TYPICAL_STAGES, self.settings.stages) + 3
        return memory_passes(numel, read, max(4, itemsize)), memory_passes(numel, 4, 1)


def fitted(magnitude: Tensor, share: float, stages: int) -> Tensor:
    """A threshold (0-d) that about `share` of `magnitude` (1-D, not negative) is not below. ∞ if one is not finite."""
    numel = len(magnitude)
    low, high = magnitude.new_zeros(()), magnitude.new_full((), torch.inf)
    above_low, above_high = (magnitude > 0).sum() / numel, magnitude.new_zeros(())
    best, error = low, magnitude.new_full((), torch.inf)
    done = magnitude.new_zeros((), dtype=torch.bool)
    for _ in range(stages):
        wanted = (share / above_low).clamp(max=1)
        over = (magnitude - low).clamp_(min=0)
        mean = over.sum() / (over > 0).sum().clamp(min=1)
        extrapolated = low - mean * wanted.clamp(min=STAGE).log()  # what an exponential fit of the rest exceeds
        # between two thresholds the survival function is taken as exponential
        falls = (above_low / above_high.clamp(min=0.5 / numel)).log()
        between = low + (high - low) * (above_low / share).log() / falls
        threshold = torch.where(high.isinf(), extrapolated, between)
        passing = (magnitude >= threshold).sum() / numel
        off = (passing / share).clamp(min=1e-9).log().abs()
        better = (off < error) & ~done
        best, error = torch.where(better, threshold, best), torch.where(better, off, error)
        enough = passing >= share
        low, above_low = torch.where(enough, threshold, low), torch.where(enough, passing, above_low)
        high, above_high = torch.where(enough, high, threshold), torch.where(enough, above_high, passing)
        done |= (passing / share - 1).abs() <= NEAR
        if magnitude.device.type == "cpu" and done:  # looking is free here; a GPU takes all stages, to the same end
            break
    return best.nan_to_num(nan=torch.inf)
