"""Weights by rows and columns: which averages they follow from, and until when."""

from __future__ import annotations

import torch
from torch import Tensor

from edgc.core.aggregators.aggregator import forget
from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.aggregators.row_column_metric import RowColumnMetric

EVERY, DECAY = 8, 0.85
GRAD = torch.zeros(3, 2)
LEFT, RIGHT = torch.tensor([[2.0], [1.0], [0.0]]), torch.tensor([[1.0], [1.0]])


def rows(metric: RowColumnMetric) -> list[float]:
    (row,), _ = metric.weights(["w"], [GRAD])
    return row.flatten().tolist()


def seen(*steps: int, scale: Tensor = LEFT) -> RowColumnMetric:
    metric = RowColumnMetric(EVERY, DECAY)
    for number, step in enumerate(steps):
        metric.see(step, ["w"], [LEFT if number == 0 else scale], [RIGHT])
        rows(metric)
    return metric


def test_they_are_one_over_the_root_of_mean_squares() -> None:
    assert len({*rows(RowColumnMetric(EVERY, DECAY))}) == 1, "all are equal before"
    squares = torch.tensor([4.0, 1.0, 0.0]) / (5 / 3)
    torch.testing.assert_close(torch.tensor(rows(seen(0))), (squares + 1e-3).rsqrt())


def test_a_matrix_is_looked_at_when_it_is_met_and_then_now_and_then() -> None:
    first, other = rows(seen(EVERY + 3)), LEFT.flip(0)
    assert len({*first}) == 3
    assert rows(seen(EVERY + 3, EVERY + 4, scale=other)) == first
    assert rows(seen(EVERY + 3, 2 * EVERY, scale=other)) != first


def test_what_is_forgotten_weighs_nothing_and_what_is_restored_the_same() -> None:
    aggregator = LowRank(LowRankSettings(name="lowrank", metric="adam"))
    metric = aggregator.state["metric"]
    assert isinstance(metric, RowColumnMetric)
    metric.see(0, ["w"], [LEFT], [RIGHT])
    before = rows(metric)
    state = {name: kept.clone() for name, kept in metric.state_dict().items()}
    forget(aggregator, ["w"])
    assert rows(metric) == rows(RowColumnMetric(EVERY, DECAY))
    metric.load_state_dict(state)
    assert rows(metric) == before
