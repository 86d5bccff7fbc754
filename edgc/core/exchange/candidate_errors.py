"""What each candidate amount would lose of the tensors that are exchanged, for policies that choose by it.

Most aggregators compress what a rank holds, and know what that loses (`Aggregator.own_errors`). Low rank loses of the
mean over ranks, of matrices that no rank knows: a few sketches tell it. One power iteration more than PowerSGD's (arXiv
1905.13727), as in randomised subspace iteration (Halko et al. 2011, arXiv 0909.4061, algorithm 4.4):
P ← orthonormalise(M Q), Q ← orthonormalise(Mᵀ P), S ← M Q. Rank j ≤ k keeps the j largest squared singular values of S;
what is outside of all k is measured, not subtracted: with Gaussian columns Ω that Q does not depend on,
‖M(I − QQᵀ)Ω‖² / columns has ‖M(I − QQᵀ)‖² as its mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgc.core.aggregators.aggregator import Aggregator, NamedTensor, compute_dtype
from edgc.core.aggregators.draws import draw
from edgc.core.aggregators.right_factors import squared_singular_values
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, matmuls, orthonormalisations
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator
from edgc.core.ops.orthonormalise import orthonormalise
from edgc.core.policies.amounts import Amount, Rank

MORE = 8  #: columns beyond the highest rank: its direction is found less well than those before it
TESTS = 8  #: columns that what is outside is measured with: its relative deviation is 5 to 7 % on real gradients


def squared_errors(
    aggregator: Aggregator,
    tensors: Sequence[NamedTensor],
    amounts: Sequence[Amount],
    comm: Communicator,
    step: int,
    tag: str,
) -> dict[str, Tensor]:
    """‖M‖², then ‖M − C(M)‖² at each amount, float64 on the tensors' device, by name: before an exchange of them.

    M is tensor + residual: its mean over ranks if that is what is compressed, else this rank's own. What is not
    compressed at any amount may be left out. Changes nothing. Collective over `comm`, charged to `tag`.
    """
    if aggregator.amount is not Rank:
        return {t.name: aggregator.own_errors(t, amounts, f"{comm.rank}/{step}") for t in tensors if t.tensor.numel()}
    ranks = {t.name: [aggregator.effective(tuple(t.tensor.shape), amount) for amount in amounts] for t in tensors}
    told = [t for t in tensors if _highest(ranks[t.name])]
    if not told:
        return {}
    names, state = [t.name for t in told], aggregator.state
    shapes = [(t.tensor.shape[1], _columns(t.tensor.shape, _highest(ranks[t.name]))) for t in told]
    like = torch.empty(0, dtype=compute_dtype(told[0].tensor), device=told[0].tensor.device)
    warm: Any = state["factors"]  # Q of the last exchange to begin with
    starts, seed = warm.fitted(names, shapes, step, like), aggregator.seed
    tests = [draw(seed, step, f"{name}/test", rows, TESTS, like) for name, (rows, _) in zip(names, shapes, strict=True)]
    residuals: Any = state["residuals"]
    parts = [[t.tensor, *residuals.held(t)] for t in told]
    found = {}
    for name, energies in zip(names, _energy_left(parts, starts, tests, comm, tag), strict=True):
        kept = [amount if isinstance(amount, Rank) else len(energies) - 1 for amount in ranks[name]]
        lost = energies[torch.tensor([0, *kept], device=energies.device)]
        whole = torch.tensor([False, *(not isinstance(amount, Rank) for amount in ranks[name])])
        found[name] = lost.masked_fill(whole.to(lost.device), 0.0)
    return found


def errors_workload(
    aggregator: Aggregator, shapes: Mapping[str, Shape], amounts: Sequence[Amount], itemsize: int = 4
) -> Workload:
    """What `squared_errors` of tensors of these shapes asks of a device and of the links.

    Of low rank: three products, each of which reads the gradient and the residual.
    """
    if aggregator.amount is not Rank:
        return aggregator.errors_workload(shapes, amounts, itemsize)
    highest = [(s, _highest([aggregator.effective(s, amount) for amount in amounts])) for s in shapes.values()]
    found = [(s[0], s[1], _columns(s, rank)) for s, rank in highest if rank]
    if not found:
        return Workload()
    twice, size = [*found, *found], max(4, itemsize)
    first = matmuls([(m, n, k + TESTS) for m, n, k in twice])
    second = orthonormalisations([(m, k) for m, _, k in found]), matmuls(twice)
    third = orthonormalisations([(n, k) for _, n, k in found]), matmuls(twice)
    left, right = sum(m * k for m, _, k in found), sum(n * k for _, n, k in found)
    tests = TESTS * sum(m for m, _, _ in found)
    sent = ((first,), left + tests), (second, right), (third, left)
    return Workload(tuple(Phase(kernels, (Message("all_reduce", size * numel),)) for kernels, numel in sent))


def _highest(amounts: Sequence[Amount]) -> int:
    return max((amount for amount in amounts if isinstance(amount, Rank)), default=0)


def _columns(shape: Sequence[int], highest: int) -> int:
    """k: columns of a sketch that tells of ranks up to `highest`."""
    return min(*shape, highest + MORE)


def _energy_left(
    parts: Sequence[Sequence[Tensor]], starts: Sequence[Tensor], tests: Sequence[Tensor], comm: Communicator, tag: str
) -> list[Tensor]:
    """Energies ‖M − M_j‖² that ranks j = 0 … k leave of each matrix's mean, float64. Collective: three all-reduces.

    M (m×n) is the sum of its `parts`, of which this rank has its own; `starts` (n×k) and `tests` (n×TESTS) are equal on
    all ranks. Non-finite elements make their own matrix's energies NaN.
    """
    widths = [start.shape[1] for start in starts]
    both = [torch.cat(pair, dim=1) for pair in zip(starts, tests, strict=True)]
    firsts = _means([_product(own, columns) for own, columns in zip(parts, both, strict=True)], comm, tag)
    lefts = orthonormalise([y[:, :k].contiguous() for y, k in zip(firsts, widths, strict=True)])
    rights = _means([_product([p.mT for p in own], b) for own, b in zip(parts, lefts, strict=True)], comm, tag)
    bases = orthonormalise(rights)
    kept = _means([_product(own, basis) for own, basis in zip(parts, bases, strict=True)], comm, tag)
    outside = [
        (y[:, k:] - s @ (basis.mT @ test)).double().square().sum() / TESTS
        for test, y, k, s, basis in zip(tests, firsts, widths, kept, bases, strict=True)
    ]
    return [
        torch.cat([squares.flip(0).cumsum(0).flip(0), squares.new_zeros(1)]) + rest
        for squares, rest in zip(squared_singular_values(kept), outside, strict=True)
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
