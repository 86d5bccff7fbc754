"""What an aggregator says that an amount would lose, against what its exchange loses, and against the best there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import Aggregator, NamedTensor
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.candidate_errors import squared_errors
from edgc.core.policies.amounts import DENSE, Amount, Bits, Rank, Ratio
from edgc.core.policies.policy import Decision
from tests.fixtures.exchanged import exchange_bucket
from tests.fixtures.ranks import every_rank

SHAPES = {"wide": (24, 60), "square": (40, 40), "vector": (301,), "row": (1, 12)}
STEPS = 3


def make(name: str, **options: Any) -> Aggregator:
    return AGGREGATORS[name](AGGREGATORS[name].Settings(name=name, **options), seed=5)


def values(step: int, rank: int = 0) -> dict[str, Tensor]:
    """Matrices whose singular values fall, and heavy tails; a rank's own are the same plus noise."""
    shared, own = torch.Generator().manual_seed(step), torch.Generator().manual_seed(100 * rank + step)
    found = {}
    for name, shape in SHAPES.items():
        tensor = torch.randn(shape, generator=shared, dtype=torch.float64) ** 3
        if len(shape) == 2 and min(shape) > 1:
            u, s, v = torch.linalg.svd(tensor, full_matrices=False)
            tensor = u @ torch.diag(s.max() * 0.9 ** torch.arange(len(s), dtype=torch.float64)) @ v
        if rank:
            tensor = tensor + 0.01 * torch.randn(shape, generator=own, dtype=torch.float64)
        found[name] = tensor.float()
    return found


def look(
    aggregator: Aggregator, of: dict[str, Tensor], amounts: list[Amount], comm: Any, step: int
) -> dict[str, Tensor]:
    tensors = [NamedTensor(name, tensor) for name, tensor in of.items()]
    return squared_errors(aggregator, tensors, amounts, comm, step, "agree")


def exchange(aggregator: Aggregator, of: dict[str, Tensor], amount: Amount, comm: Any, step: int) -> dict[str, Tensor]:
    """What the residuals are after it."""
    decision = Decision(DENSE, {n: aggregator.effective(tuple(t.shape), amount) for n, t in of.items()})
    exchange_bucket(aggregator, comm, of, decision, step)
    return {name: kept for name in of if (kept := aggregator.residual(name)) is not None}


OWN: list[tuple[str, dict[str, Any], list[Amount]]] = [
    ("topk", {}, [Ratio(0.01), Ratio(0.2), Ratio(1.0)]),
    ("few_bits", {"second_shot": "fp32"}, [Bits(1), Bits(2), Bits(4), Bits(8), Bits(32)]),
    ("few_bits", {"second_shot": "fp32", "format": "lloyd", "block": "row"}, [Bits(1), Bits(2), Bits(4)]),
]


@pytest.mark.parametrize(("name", "options", "amounts"), OWN)
def test_it_is_what_the_next_exchange_loses(name: str, options: dict[str, Any], amounts: list[Amount]) -> None:
    """Two ranks have the same. Where a part's owner knows its own exactly, the other one lost it."""

    def body(comm: LoopbackCommunicator) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
        told = look(make(name, **options), values(0), amounts, comm, 0)
        return [(told, exchange(make(name, **options), values(0), amount, comm, 0)) for amount in amounts]

    first, second = run_ranks(2, body)
    for place, ((told, one), (_, other)) in enumerate(zip(first, second, strict=True)):
        for n, table in told.items():
            lost = torch.maximum(one[n].abs(), other[n].abs()) if n in one else torch.zeros(1)
            expected = float(lost.double().square().sum())
            assert float(table[1 + place]) == pytest.approx(expected, rel=1e-4, abs=1e-9 * float(table[0]))


@pytest.mark.parametrize(("name", "amount"), [("topk", Ratio(0.1)), ("few_bits", Bits(2)), ("lowrank", Rank(3))])
@every_rank(2)
def test_what_is_compressed_is_the_gradient_with_its_residual(
    comm: LoopbackCommunicator, name: str, amount: Amount
) -> None:
    aggregator = make(name)
    residuals = exchange(aggregator, values(0), amount, comm, 0)
    for n, table in look(aggregator, values(1), [amount], comm, 1).items():
        whole = float((values(1)[n] + residuals[n]).double().square().sum())
        alone = float(values(1)[n].double().square().sum())
        assert abs(float(table[0]) - whole) < 0.3 * abs(float(table[0]) - alone)


def best_left(mean: Tensor, rank: int) -> float:
    return float(torch.linalg.svdvals(mean)[rank:].square().sum())


RANKS: list[Amount] = [Rank(1), Rank(3), Rank(6), Rank(9), Rank(1000)]


def test_ranks_lose_of_the_mean_what_the_best_ones_do() -> None:
    """Within a tenth of the singular values' sum, from the first look on; the noise of single ranks is not in it."""

    def body(comm: LoopbackCommunicator) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        aggregator, residuals = make("lowrank"), dict[str, Tensor]()
        for step in range(STEPS):
            own = values(step, comm.rank)
            wholes = {n: t.double() + residuals.get(n, torch.zeros(())) for n, t in own.items()}
            told = look(aggregator, own, RANKS, comm, step)
            residuals = exchange(aggregator, own, Rank(3), comm, step)
        return told, wholes

    everywhere = run_ranks(3, body)
    assert set(everywhere[0][0]) == {"wide", "square"}, "a row is never smaller as factors"
    for name, table in everywhere[0][0].items():
        mean = sum(wholes[name] for _, wholes in everywhere) / len(everywhere)
        assert isinstance(mean, Tensor)
        exact = [float(mean.square().sum()), *(best_left(mean, int(r)) for r in RANKS[:-1])]  # type: ignore[arg-type]
        assert table[:-1].tolist() == pytest.approx(exact, rel=0.1)
        assert table[-1] == 0, "what travels whole loses nothing"
        assert all(torch.allclose(told[name], table, rtol=1e-5) for told, _ in everywhere)


def test_random_matrices_lose_no_less_than_the_best_rank_leaves() -> None:
    """Where no direction stands out: within a quarter."""
    comm = LoopbackCommunicator(0, 1, None)  # type: ignore[arg-type]
    mean = torch.randn(120, 300, generator=torch.Generator().manual_seed(1))
    ranks: list[Amount] = [Rank(4), Rank(16), Rank(32)]
    (table,) = look(make("lowrank"), {"w": mean}, ranks, comm, 0).values()
    for rank, left in zip(ranks, table[1:].tolist(), strict=True):
        exact = best_left(mean.double(), int(rank))  # type: ignore[arg-type]
        assert 0.9 * exact < left < 1.25 * exact


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@every_rank(2)
def test_what_is_not_finite_spoils_its_own_table_only(comm: LoopbackCommunicator, bad: float) -> None:
    for name, amounts in (
        ("lowrank", [Rank(2), Rank(4)]), ("topk", [Ratio(0.1)]), ("few_bits", [Bits(2)])
    ):  # fmt: skip
        own = values(0, comm.rank)
        if comm.rank == 0:
            own["square"][3, 3] = bad
        told = look(make(name), own, amounts, comm, 0)
        assert told["wide"].isfinite().all()
        if comm.rank == 0 or name == "lowrank":
            assert not told["square"].isfinite().all()
