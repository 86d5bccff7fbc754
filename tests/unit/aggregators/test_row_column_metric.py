"""Weights by rows and columns: which gradients they follow from, and that averages stay as large as gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from edgc.core.aggregators.aggregator import Aggregator, forget
from edgc.core.aggregators.few_bits import FewBits, FewBitsSettings
from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.aggregators.row_column_metric import RowColumnMetric
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import Amount, Bits, Rank
from tests.fixtures.exchanged import exchange_one

EVERY, DECAY = 8, 0.85
GRAD = torch.tensor([[2.0, -2.0], [1.0, 1.0], [0.0, 0.0]])


def rows(metric: RowColumnMetric) -> list[float]:
    (row,), _ = metric.weights(["w"], [GRAD])
    return row.flatten().tolist()


def seen(*grads: torch.Tensor) -> RowColumnMetric:
    """Alone in its group, from step 0 on."""
    metric = RowColumnMetric(EVERY, DECAY)
    for step, grad in enumerate(grads):
        if told := metric.add(step, ["w"], [grad]):
            metric.take(["w"], told)
    return metric


def expected(squares: torch.Tensor) -> torch.Tensor:
    return (squares / squares.mean() + 3e-2).rsqrt()


def test_they_are_one_over_the_root_of_mean_squares() -> None:
    assert len({*rows(RowColumnMetric(EVERY, DECAY))}) == 1, "all are equal before"
    torch.testing.assert_close(torch.tensor(rows(seen(GRAD))), expected(torch.tensor([4.0, 1.0, 0.0])))


def test_ranks_agree_now_and_then_on_all_that_came_since() -> None:
    """A row with a gradient in one step of eight only, an embedding's, is no less than what it has in the mean."""
    rare = torch.tensor([[0.0, 0.0], [0.0, 0.0], [4.0, 4.0]])
    between = [GRAD, rare, *[GRAD] * (EVERY - 2)]
    assert rows(seen(*between)) == rows(seen(GRAD)), "until they agree again"
    first, later = torch.tensor([4.0, 1.0, 0.0]), torch.tensor([4.0, 1.0, 0.0]) * (EVERY - 1) / EVERY
    later[2] = 16 / EVERY
    found = torch.tensor(rows(seen(*between, GRAD)))
    torch.testing.assert_close(found, expected(DECAY * first + (1 - DECAY) * later))


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    broken = GRAD.clone()
    broken[1, 1] = torch.nan
    metric = seen(GRAD, *[broken] * EVERY)
    assert rows(metric) == rows(seen(GRAD))
    assert torch.isfinite(metric["w"]).all(), "nor what comes after it"


@pytest.mark.parametrize("weighted", ["by rows and columns", "whitened"])
def test_averages_do_not_grow(weighted: str) -> None:
    """Of rows that seldom have a gradient, as an embedding's. By rows and columns, with weights made of decoded
    averages, they grew to twenty times a rank's gradient, and on."""
    sizes = torch.logspace(0, -2, 512)[:, None]

    def body(comm: LoopbackCommunicator) -> list[float]:
        wires: Any = {"left_wire": "int4", "right_wire": "int4", "rotation": True, "first_factor": "smaller"}
        aggregator: Aggregator = LowRank(LowRankSettings(name="lowrank", metric="adam", **wires))
        amount: Amount = Rank(2)
        if weighted == "whitened":
            aggregator, amount = FewBits(FewBitsSettings(name="few_bits", format="lloyd", whitening=True)), Bits(1)
        norms = []
        for step in range(120):
            draw = torch.Generator().manual_seed(4 * step + comm.rank)
            there = torch.rand(512, 1, generator=draw) < 0.1 + 0.9 * sizes**2
            grad = sizes * there * torch.randn(512, 32, generator=draw)
            norms.append(float(exchange_one(aggregator, comm, grad, amount, step).norm() / grad.norm()))
        return norms

    assert max(run_ranks(4, body)[0]) < 1


def test_what_is_forgotten_weighs_nothing_and_what_is_restored_the_same() -> None:
    aggregator = LowRank(LowRankSettings(name="lowrank", metric="adam"))
    metric = aggregator.state["metric"]
    assert isinstance(metric, RowColumnMetric)
    metric.take(["w"], metric.add(0, ["w"], [GRAD]))
    before = rows(metric)
    state = {name: kept.clone() for name, kept in metric.state_dict().items()}
    forget(aggregator, ["w"])
    assert rows(metric) == rows(RowColumnMetric(EVERY, DECAY))
    metric.load_state_dict(state)
    assert rows(metric) == before
