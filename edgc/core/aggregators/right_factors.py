"""Right factors Q (n×r) by parameter name: warm from step to step, fitted to a new rank; and memory for factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgc.core.aggregators.aggregator import StateByName, compute_dtype
from edgc.core.aggregators.draws import draw
from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.copies import copy_all
from edgc.core.ops.orthonormalise import orthonormalise
from edgc.core.ops.orthonormalise.reference import of_equal_rank


class Buffers:
    """Flat buffers that only grow: a changed rank takes a shorter or longer piece of the same memory.

    EDGC's first rank is its highest, so its buffers are made once.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, key: str, numel: int, like: Tensor) -> Tensor:
        """`numel` elements of the buffer `key`, whatever is in them, in `like`'s precision and on its device.

        The same memory as at the last call: nobody may still read what that gave.
        """
        kind = compute_dtype(like)
        found = self._memory.get(key)
        if found is None or found.numel() < numel or found.dtype != kind or found.device != like.device:
            found = self._memory[key] = torch.empty(numel, dtype=kind, device=like.device)
        return found[:numel]


class WarmFactors(StateByName):
    """The last step's Q of every matrix, n×r: each a view of memory of its own that only grows."""

    def __init__(self, seed: int, warm: bool = True) -> None:
        """`warm`: whether a step begins with the last one's Q."""
        super().__init__()
        self._seed, self._warm, self._memory = seed, warm, Buffers()

    def first(self, names: Sequence[str], shapes: Sequence[tuple[int, int]], step: int, like: Tensor) -> list[Tensor]:
        """Q to begin a step with, of these shapes, in the precision and on the device of `like`."""
        if self._warm:
            return self.fitted(names, shapes, step, like)
        return [draw(self._seed, step, name, *shape, like) for name, shape in zip(names, shapes, strict=True)]

    def fitted(self, names: Sequence[str], shapes: Sequence[tuple[int, int]], step: int, like: Tensor) -> list[Tensor]:
        """The last Q of these shapes (n, r), in the precision and on the device of `like`; the first time random.

        Of a larger last Q, the leading principal directions of what it sent; a smaller one is extended by random
        columns orthogonal to it. Only the span matters: the left factor that it gives is orthonormalised. One of
        another height is forgotten.
        """
        wanted = dict(zip(names, shapes, strict=True))
        met = [name for name in names if name in self and len(self[name]) == wanted[name][0]]
        lasts = {name: self[name].to(like) for name in met}
        growing = [name for name, last in lasts.items() if last.shape[1] < wanted[name][1]]
        bases = dict(zip(growing, orthonormalise([lasts[name] for name in growing]), strict=True)) if growing else {}
        found = []
        for name, (height, rank) in wanted.items():
            last = lasts.get(name)
            if last is None:
                found.append(draw(self._seed, step, name, height, rank, like))
            elif last.shape[1] > rank:
                found.append(last @ _principal(last)[:, :rank])
            elif last.shape[1] < rank:
                drawn = draw(self._seed, step, name, height, rank - last.shape[1], like)
                found.append(torch.cat([last, drawn - bases[name] @ (bases[name].mT @ drawn)], dim=1))
            else:
                found.append(last)
        return found

    def keep(self, factors: Mapping[str, Tensor]) -> None:
        """Remember copies of the Q of some matrices for the next step."""
        for name, q_nr in factors.items():
            self[name] = self._memory.take(name, q_nr.numel(), q_nr).view_as(q_nr)
        copy_all([self[name] for name in factors], list(factors.values()))

    def state_dict(self) -> dict[str, Tensor]:
        """Q by name."""
        return {name: q_nr.clone() for name, q_nr in self.items()}  # a view would save all of its memory

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a copy of what `state_dict` gave."""
        self.clear()
        self.keep(state)


def singular_values(q_nr: Tensor) -> Tensor:
    """Singular values of Q, falling, float64: those of Ĝ = P̂ Qᵀ, as P̂ is orthonormal. NaN where Q is not finite."""
    return squared_singular_values([q_nr])[0].sqrt()


def squared_singular_values(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Falling, float64, NaN where not finite; of those of one width together, as a GPU's host waits for each call."""
    found: dict[int, Tensor] = {}
    for places in of_equal_rank(matrices):
        grams = torch.stack([matrices[i].double().mT @ matrices[i].double() for i in places])
        values = torch.linalg.eigvalsh(torch.nan_to_num(grams)).flip(1).clamp(min=0)
        finite = grams.isfinite().all(dim=(1, 2))
        found |= dict(zip(places, torch.where(finite[:, None], values, torch.nan), strict=True))
    return [found[i] for i in range(len(matrices))]


def _principal(q_nr: Tensor) -> Tensor:
    """Right singular vectors of Q (r×r), by falling singular value. Never raises: what is not finite stays so in Q."""
    exact = q_nr.double()
    _, vectors = torch.linalg.eigh(torch.nan_to_num(exact.mT @ exact))
    return vectors.flip(1).to(q_nr.dtype)
