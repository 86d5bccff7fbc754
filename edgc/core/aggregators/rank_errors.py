"""What every rank up to some k would lose of the mean over ranks of matrices that no rank knows: from a few sketches.

One power iteration more than PowerSGD's (arXiv 1905.13727), as in randomised subspace iteration (Halko et al. 2011,
arXiv 0909.4061, algorithm 4.4): P ← orthonormalise(M Q), Q ← orthonormalise(Mᵀ P), S ← M Q. Rank j ≤ k keeps the j
largest squared singular values of S; what is outside of all k is measured, not subtracted: with Gaussian columns Ω that
Q does not depend on, ‖M(I − QQᵀ)Ω‖² / columns has ‖M(I − QQᵀ)‖² as its mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.draws import draw
from edgc.core.aggregators.residuals import Residuals, compute_dtype
from edgc.core.aggregators.right_factors import WarmFactors
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, matmuls, orthonormalisations
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator
from edgc.core.ops.orthonormalise import orthonormalise
from edgc.core.policies.amounts import Amount, Rank

MORE = 8  #: columns beyond the highest rank: its direction is found less well than those before it
TESTS = 8  #: columns that what is outside is measured with: its relative deviation is 5 to 7 % on real gradients


class Sketched(NamedTuple):
    """A matrix M (m×n), as the sum of `parts` of which this rank has its own; all ranks have equal `start` and `test`.

    `start` is n×k, `test` n×TESTS.
    """

    parts: Sequence[Tensor]
    start: Tensor
    test: Tensor


def squared_errors(
    tensors: Sequence[NamedTensor],
    amounts: Mapping[str, Sequence[Amount]],
    factors: WarmFactors,
    residuals: Residuals,
    seed_and_step: tuple[int, int],
    comm: Communicator,
    tag: str,
) -> dict[str, Tensor]:
    """Of each matrix (with its residual) that some amount compresses: ‖M̄‖², then ‖M̄ − M̄_r‖² at each amount, by name.

    `amounts` are effective: a rank, or dense, which loses nothing. float64, (1 + amounts,). Collective.
    """
    told = [t for t in tensors if _highest(amounts[t.name])]
    if not told:
        return {}
    names = [t.name for t in told]
    shapes = [(t.tensor.shape[1], _columns(t.tensor.shape, _highest(amounts[t.name]))) for t in told]
    like = torch.empty(0, dtype=compute_dtype(told[0].tensor), device=told[0].tensor.device)
    seed, step = seed_and_step
    starts = factors.fitted(names, shapes, step, like)
    tests = [draw(seed, step, f"{name}/test", rows, TESTS, like) for name, (rows, _) in zip(names, shapes, strict=True)]
    parts = [[t.tensor, *residuals.held(t)] for t in told]
    found = {}
    for name, energies in zip(names, energy_left([*map(Sketched, parts, starts, tests)], comm, tag), strict=True):
        ranks = [amount if isinstance(amount, Rank) else len(energies) - 1 for amount in amounts[name]]
        lost = energies[torch.tensor([0, *ranks], device=energies.device)]
        whole = torch.tensor([False, *(not isinstance(amount, Rank) for amount in amounts[name])])
        found[name] = lost.masked_fill(whole.to(lost.device), 0.0)
    return found


def errors_workload(matrices: Sequence[tuple[Shape, Sequence[Amount]]], itemsize: int) -> Workload:
    """What `squared_errors` asks for, of shapes with their effective amounts: three products, each of which reads M."""
    found = [(s[0], s[1], _columns(s, _highest(amounts))) for s, amounts in matrices if _highest(amounts)]
    if not found:
        return Workload()
    twice = [*found, *found]  # the gradient, and the residual
    first = matmuls([(m, n, k + TESTS) for m, n, k in twice])
    second = orthonormalisations([(m, k) for m, _, k in found]), matmuls(twice)
    third = orthonormalisations([(n, k) for _, n, k in found]), matmuls(twice)
    left, right = sum(m * k for m, _, k in found), sum(n * k for _, n, k in found)
    tests = TESTS * sum(m for m, _, _ in found)
    return Workload(
        (
            Phase((first,), (Message("all_reduce", itemsize * (left + tests)),)),
            Phase(second, (Message("all_reduce", itemsize * right),)),
            Phase(third, (Message("all_reduce", itemsize * left),)),
        )
    )


def _highest(amounts: Sequence[Amount]) -> int:
    return max((amount for amount in amounts if isinstance(amount, Rank)), default=0)


def _columns(shape: Sequence[int], highest: int) -> int:
    """k: columns of a sketch that tells of ranks up to `highest`."""
    return min(*shape, highest + MORE)


def energy_left(matrices: Sequence[Sketched], comm: Communicator, tag: str) -> list[Tensor]:
    """Energies ‖M − M_j‖² that ranks j = 0 … k leave of each matrix's mean, float64. Collective: three all-reduces.

    Non-finite elements make their own matrix's energies NaN.
    """
    widths = [matrix.start.shape[1] for matrix in matrices]
    first = [_product(m.parts, torch.cat([m.start, m.test], dim=1)) for m in matrices]
    firsts = _means(first, comm, tag)
    lefts = orthonormalise([y[:, :k].contiguous() for y, k in zip(firsts, widths, strict=True)])
    rights = _means([_product([p.mT for p in m.parts], b) for m, b in zip(matrices, lefts, strict=True)], comm, tag)
    bases = orthonormalise(rights)
    kept = _means([_product(m.parts, basis) for m, basis in zip(matrices, bases, strict=True)], comm, tag)
    outside = [
        (y[:, k:] - s @ (basis.mT @ m.test)).double().square().sum() / TESTS
        for m, y, k, s, basis in zip(matrices, firsts, widths, kept, bases, strict=True)
    ]
    return [
        torch.cat([squares.flip(0).cumsum(0).flip(0), squares.new_zeros(1)]) + rest
        for squares, rest in zip(_squared_singular_values(kept), outside, strict=True)
    ]


def _product(parts: Sequence[Tensor], factor: Tensor) -> Tensor:
    product = parts[0].to(factor.dtype) @ factor
    for part in parts[1:]:
        product += part.to(factor.dtype) @ factor
    return product


def _means(own: Sequence[Tensor], comm: Communicator, tag: str) -> list[Tensor]:
    """Means over ranks, in one collective."""
    flat = torch.cat([each.reshape(-1) for each in own])
    comm.all_reduce(flat, tag=tag).wait()
    parts = flat.mul_(1 / comm.size).split([each.numel() for each in own])
    return [part.view_as(each) for part, each in zip(parts, own, strict=True)]


def _squared_singular_values(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Falling, float64; of those of one width together, as a GPU's host waits for each call."""
    by_width = defaultdict(list)
    for i, matrix in enumerate(matrices):
        by_width[matrix.shape[1]].append(i)
    found: dict[int, Tensor] = {}
    for places in by_width.values():
        grams = torch.stack([(matrices[i].mT @ matrices[i]).double() for i in places])
        values = torch.linalg.eigvalsh(torch.nan_to_num(grams)).flip(1).clamp(min=0)
        finite = grams.isfinite().all(dim=(1, 2))
        found |= dict(zip(places, torch.where(finite[:, None], values, torch.nan), strict=True))
    return [found[i] for i in range(len(matrices))]
