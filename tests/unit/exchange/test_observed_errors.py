"""Norms and errors that policies decide by: of what, charged to whom, equal on all ranks, and resumed bit for bit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.comm import Sharded
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.candidate_errors import errors_workload
from edgc.core.exchange.gradient_exchange import GradientExchange, compressible
from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import plain
from edgc.core.policies.policy import Context, Observation
from tests.fixtures.exchanged import exchange_round, watched
from tests.fixtures.ranks import every_rank

SHAPES = {"layer.weight": (48, 32), "embedding.weight": (60, 16), "layer.bias": (48,)}
WINDOW = 4
#: aggregator, its options, policy, its options
METHODS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "lgreco": ("lowrank", {}, "lgreco", {"rank": 4, "choices": 7}),
    "lgreco_topk": ("topk", {}, "lgreco", {"ratio": 0.1, "choices": 5}),
    "lgreco_bits": ("few_bits", {"block": 16}, "lgreco", {"bits": 4, "alpha": 1.5}),
    "accordion": ("lowrank", {}, "accordion", {"ranks": (2, 8), "eta": 0.3}),
    "accordion_topk": ("topk", {}, "accordion", {"ratios": (0.01, 0.1), "eta": 0.3}),
    "edgc_bits": (
        "few_bits", {}, "edgc_bits",
        {"bits": 4, "granularity": "parameter", "alpha": 0.5, "beta": 1.0, "warmup_fraction": 0.0},
    ),
}  # fmt: skip
every_method = pytest.mark.parametrize("method", METHODS)


def exchange_on(comm: LoopbackCommunicator, method: str, **options: Any) -> tuple[GradientExchange, list[Observation]]:
    aggregator, own, policy, chosen = METHODS[method]
    kind = POLICIES[policy]
    settings = kind.Settings(name=policy, window=WINDOW, **chosen)
    shapes = compressible(SHAPES, AGGREGATORS[aggregator].amount)
    made = kind(settings, Context(0, 1, 100, shapes, shapes))
    found = AGGREGATORS[aggregator](AGGREGATORS[aggregator].Settings(name=aggregator, **own), seed=3)
    return GradientExchange(found, made, comm, comm, shapes, **options), watched(made)


def gradients(rank: int, step: int) -> list[NamedTensor]:
    """The embedding's shrink from window to window."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    scale = {"embedding.weight": 0.3 ** (step // WINDOW)}
    return [
        NamedTensor(name, torch.randn(shape, generator=generator) * scale.get(name, 1.0))
        for name, shape in SHAPES.items()
    ]


def step_once(exchange: GradientExchange, step: int, first: int = 1) -> tuple[list[NamedTensor], list[dict[str, Any]]]:
    """`first`: how many gradients are in the first bucket."""
    own = gradients(exchange.comm.rank, step)
    return own, exchange_round(exchange, step, own[:first], own[first:])


def decided(exchange: GradientExchange) -> list[dict[str, Any]]:
    """In three windows."""
    return [record for step in range(3 * WINDOW) for record in step_once(exchange, step)[1]]


@every_method
def test_ranks_see_and_decide_alike(method: str) -> None:
    def body(comm: LoopbackCommunicator) -> tuple[list[Observation], list[dict[str, Any]]]:
        exchange, seen = exchange_on(comm, method)
        return seen, decided(exchange)

    first, second, third = run_ranks(3, body)
    assert first == second == third
    assert [observation.step for observation in first[0]] == [3, 7, 11]
    column = {"topk": "ratio", "few_bits": "bits"}.get(METHODS[method][0], "rank")
    assert len({record[column] for record in first[1]}) > 1, "something changes"


@every_method
@every_rank(2)
def test_resumed_inside_a_window_equals_uninterrupted(comm: LoopbackCommunicator, method: str) -> None:
    (whole, seen), (before, _), (after, again) = (exchange_on(comm, method) for _ in range(3))
    for step in range(12):
        last, _ = step_once(whole, step)
    for step in range(6):
        step_once(before, step)
    after.load_state_dict(before.state_dict())
    for step in range(6, 12):
        resumed, _ = step_once(after, step)
    assert seen[1:] == again
    assert all(torch.equal(a.tensor, b.tensor) for a, b in zip(last, resumed, strict=True))


@pytest.mark.parametrize("buckets", [(1, 1, 1, 1), (2, 1, 1, 1)], ids=["the same", "others after a step"])
def test_a_norm_is_the_root_of_its_mean_square_over_the_window(buckets: tuple[int, ...]) -> None:
    """Also where DDP makes other buckets after its first step."""

    def body(comm: LoopbackCommunicator) -> tuple[list[Observation], list[dict[str, float]]]:
        exchange, seen = exchange_on(comm, "accordion_topk")
        squares = []
        for step in range(WINDOW):
            own, _ = step_once(exchange, step, buckets[step])
            squares.append({g.name: float(g.tensor.double().square().sum()) for g in own})
        return seen, squares

    (observation,), squares = run_ranks(2, body)[0]
    by_hand = {name: sum(each[name] for each in squares) / WINDOW for name in SHAPES}
    assert observation.norm == pytest.approx({name: math.sqrt(mean) for name, mean in by_hand.items()}, rel=1e-6)
    assert observation.squared_error == observation.payload == {}, "nobody asked for it"


@every_method
def test_shards_show_what_whole_averages_do(method: str) -> None:
    """Where a rank has a part of every average only. Few bits are rounded once there, not twice: they lose less."""
    cuts = {name: math.prod(shape) // 3 for name, shape in SHAPES.items()}
    first = {name: (0, cut) for name, cut in cuts.items()}
    layout = Sharded([first, {name: (cut, math.prod(SHAPES[name])) for name, cut in cuts.items()}])

    def body(comm: LoopbackCommunicator) -> tuple[Observation, Observation]:
        found = []
        for sharded in (False, True):
            exchange, seen = exchange_on(comm, method)
            if sharded:
                exchange.aggregator.layout = layout
            for step in range(WINDOW):
                step_once(exchange, step)
            found.append(seen[0])
        return found[0], found[1]

    (whole, shards), (_, other) = run_ranks(2, body)
    assert shards == other, "ranks see the same"
    once = METHODS[method][0] == "few_bits"
    for what in ("norm", "relative_error", "entropy", *(() if once else ("squared_error",))):
        seen, expected = getattr(shards, what), getattr(whole, what)
        assert seen.keys() == expected.keys()
        for name in expected:
            if once and what == "relative_error":
                assert 0.3 * expected[name] < seen[name] < expected[name], name
            else:
                assert seen[name] == pytest.approx(expected[name], rel=1e-5), (what, name)


def test_tables_are_of_the_windows_last_step_with_the_bytes_that_amounts_cost() -> None:
    def body(comm: LoopbackCommunicator) -> tuple[Observation, dict[str, float], list[float]]:
        exchange, seen = exchange_on(comm, "lgreco_topk")
        for step in range(WINDOW - 1):
            step_once(exchange, step)
        whole = {
            g.name: float((g.tensor + exchange.aggregator.residual(g.name)).double().square().sum())
            for g in gradients(comm.rank, WINDOW - 1)
        }
        step_once(exchange, WINDOW - 1)
        return seen[0], whole, [plain(amount) or 0.0 for amount in exchange.policy.candidates]

    (observation, one, ratios), (_, other, _) = run_ranks(2, body)
    assert set(observation.squared_error) == set(SHAPES)
    for name, shape in SHAPES.items():
        total, *lost = observation.squared_error[name]
        assert total == pytest.approx((one[name] + other[name]) / 2, rel=1e-6), "the mean of what ranks have"
        assert total > lost[0] > lost[1] > lost[-1] > 0
        assert observation.payload[name] == tuple(8 * math.ceil(r * math.prod(shape)) for r in ratios)


@pytest.mark.parametrize("compresses", [True, False])
@every_rank(2)
def test_only_its_own_traffic_is_charged_and_only_at_a_windows_end(
    comm: LoopbackCommunicator, compresses: bool
) -> None:
    exchange, _ = exchange_on(comm, "lgreco", compresses=compresses)
    for step in range(WINDOW - 1):
        step_once(exchange, step)
        assert comm.ledger.take().keys() <= {"gradient", "observe"}
    step_once(exchange, WINDOW - 1)
    accounts = comm.ledger.take()
    assert accounts.keys() <= {"gradient", "agree", "observe"}
    end = accounts["agree"].payload_bytes
    scalars = 2 * 8 * 2  # loss and backward time, averaged and broadcast
    if not compresses:
        assert end == scalars
        return
    aggregator = AGGREGATORS["lowrank"](AGGREGATORS["lowrank"].Settings(name="lowrank"))
    candidates = POLICIES["lgreco"].Settings(name="lgreco", rank=4, choices=7).amounts
    by_bucket = [{n: s for n, s in SHAPES.items() if n.startswith(p)} for p in ("layer.weight", "embedding")]
    look = sum(errors_workload(aggregator, shapes, candidates).payload for shapes in by_bucket)
    tables = 2 * 8 * 2 * (1 + len(candidates))
    errors = 8 * 2  # the relative errors of the records, broadcast with the rest
    assert end == look + scalars + tables + errors


def test_lgreco_gives_the_small_gradient_less() -> None:
    """The embedding's gradients end up eleven times smaller than the layer's: its rank pays least."""
    records = run_ranks(2, lambda comm: decided(exchange_on(comm, "lgreco")[0]))[0]
    last = {record["parameter"]: record["rank"] for record in records[-2:]}
    assert last["embedding.weight"] < 4 <= last["layer.weight"]
