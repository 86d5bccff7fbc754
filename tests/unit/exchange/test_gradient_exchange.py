"""GradientExchange: placement, and agreement of ranks on what was observed."""

from __future__ import annotations

import itertools
import math
import random
import time
from typing import Any

import pytest
import torch

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import Exchange, LastPending, NamedTensor
from edgc.core.aggregators.dense import DenseSettings
from edgc.core.aggregators.lowrank import LowRankSettings
from edgc.core.comm import GRADIENT, ReduceOp, Work, telemetry
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.gradient_exchange import GradientExchange, compressible
from edgc.core.exchange.observation import AGREE
from edgc.core.policies.amounts import DENSE, ON, Amount, AmountKind, Bits, On, Rank, Ratio
from edgc.core.policies.fixed import Fixed, FixedSettings
from edgc.core.policies.policy import Context, Decision, Observation, Policy, Sampling
from tests.fixtures.exchanged import exchange_round
from tests.fixtures.ranks import every_rank

SHAPES = {"layer.weight": (24, 16), "embedding.weight": (40, 16), "layer.bias": (24,)}


class Watching(Policy):
    """A policy that keeps what it saw; rank 2 everywhere."""

    window, sampling = 4, Sampling(every=2, rate=1.0, estimator="gaussian")

    def __init__(self, spectrum: bool = False) -> None:
        self.spectrum = spectrum
        self.seen: list[Observation] = []

    def observe(self, observation: Observation) -> None:
        self.seen.append(observation)

    def decide(self, step: int) -> Decision:
        return Decision(Rank(2))


def exchange_on(comm: LoopbackCommunicator, **options: Any) -> GradientExchange:
    aggregator = AGGREGATORS["lowrank"](LowRankSettings(name="lowrank"), seed=3)
    names = compressible(SHAPES, Rank, options.pop("exclude", ()))
    watching = Watching(options.pop("spectrum", False))
    return GradientExchange(aggregator, watching, comm, options.pop("agreement", comm), names, **options)


def gradients(rank: int, step: int) -> list[NamedTensor]:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return [NamedTensor(name, torch.randn(shape, generator=generator) * (rank + 1)) for name, shape in SHAPES.items()]


def step_once(exchange: GradientExchange, step: int) -> tuple[list[NamedTensor], list[dict]]:
    own = gradients(exchange.comm.rank, step)
    return own, exchange_round(exchange, step, own[:1], own[1:])


def seen(comm: LoopbackCommunicator, **options: Any) -> list[Observation]:
    """In eight steps."""
    exchange = exchange_on(comm, **options)
    for step in range(8):
        step_once(exchange, step)
    return exchange.policy.seen  # type: ignore[attr-defined]


def test_only_matrices_not_excluded_are_compressible() -> None:
    assert set(compressible(SHAPES, Rank, ("embedding",))) == {"layer.weight"}
    assert set(compressible(SHAPES, Ratio)) == set(SHAPES)


@pytest.mark.parametrize(
    ("options", "elements"),
    [
        ({}, 2 * (24 + 16) + 2 * (40 + 16) + 24),
        ({"exclude": ("embedding",)}, 2 * (24 + 16) + 40 * 16 + 24),
        ({"compresses": False}, 24 * 16 + 40 * 16 + 24),
    ],
)
@every_rank(2)
def test_excluded_parameters_and_stages_travel_dense(
    comm: LoopbackCommunicator, options: dict[str, Any], elements: int
) -> None:
    step_once(exchange_on(comm, **options), 0)
    assert comm.ledger.take()["gradient"].payload_bytes == 4 * elements


def test_ranks_see_the_same_observation_and_it_is_the_mean() -> None:
    first, second = run_ranks(2, seen)
    assert first == second
    assert [o.step for o in first] == [3, 7]
    for window, observation in enumerate(first):
        assert set(observation.entropy) == {"layer.weight", "embedding.weight"}
        sampled = [4 * window, 4 * window + 2]
        for name, value in observation.entropy.items():
            by_hand = [
                math.log(float(g.tensor.double().std(correction=0))) + 0.5 * math.log(2 * math.pi * math.e)
                for rank in (0, 1)
                for step in sampled
                for g in gradients(rank, step)
                if g.name == name
            ]
            assert value == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-6)  # float32's last digits


@every_rank(2)
def test_the_mean_of_entropy_leaves_out_ranks_and_steps_that_did_not_use_a_parameter(
    comm: LoopbackCommunicator,
) -> None:
    seen = []
    for unused in (False, True):
        exchange = exchange_on(comm)
        for step in range(8):
            own = gradients(1, step)
            if step >= 4 or (unused and (comm.rank == 0 or step == 0)):
                own[0].tensor.zero_()
            exchange_round(exchange, step, own)
        seen.append([observation.entropy for observation in exchange.policy.seen])  # type: ignore[attr-defined]
    (whole, never), (part, _) = seen
    assert set(whole) == set(part) == {"layer.weight", "embedding.weight"}
    assert set(never) == {"embedding.weight"}
    assert part["embedding.weight"] == whole["embedding.weight"]
    alone = float(gradients(1, 2)[0].tensor.double().std(correction=0))
    by_hand = math.log(alone) + 0.5 * math.log(2 * math.pi * math.e)
    assert part["layer.weight"] == pytest.approx(by_hand, abs=1e-6)


def test_relative_error_is_of_the_mean_over_ranks() -> None:
    def body(comm: LoopbackCommunicator) -> tuple[dict[str, float], dict[str, tuple[torch.Tensor, torch.Tensor]]]:
        exchange = exchange_on(comm)
        for step in range(4):
            own, _ = step_once(exchange, step)
        kept = {g.name: (exchange.aggregator.residual(g.name).clone(), g.tensor) for g in own if g.tensor.dim() == 2}
        return exchange.policy.seen[0].relative_error, kept  # type: ignore[attr-defined]

    (estimated, first), (_, second) = run_ranks(2, body)
    for name, (lost, kept) in first.items():
        mean = (lost + second[name][0]) / 2
        assert float((mean * kept).sum()) == pytest.approx(0, abs=1e-3)  # what was lost is orthogonal to what was kept
        assert estimated[name] == pytest.approx(float(mean.norm() / (mean + kept).norm()), rel=0.1)


@pytest.mark.parametrize(("rank", "recorded", "measured"), [(2, 2, {"observe"}), (12, None, set())])
@every_rank(2)
def test_records_say_what_travels_dense_and_measurements_are_charged_apart(
    comm: LoopbackCommunicator, rank: int, recorded: int | None, measured: set[str]
) -> None:
    """12·(24 + 16) > 24·16: nothing is lost then, and there is nothing to measure."""
    exchange = exchange_on(comm, stage=1)
    exchange.policy.decide = lambda step: Decision(Rank(rank))  # type: ignore[method-assign]
    records = [record for step in range(4) for record in step_once(exchange, step)[1]]
    assert {r["parameter"]: r["rank"] for r in records} == {"layer.weight": recorded, "embedding.weight": recorded}
    assert {(r["step"], r["window"], r["stage"]) for r in records} == {(4, 1, 1)}
    assert set(comm.ledger.take()) == {"gradient", "agree"} | measured


class Rounding(LoopbackCommunicator):
    """A transport whose sums differ in their last digits from rank to rank, as some orders of summation do."""

    def all_reduce(self, tensor: torch.Tensor, *, op: ReduceOp = ReduceOp.SUM, tag: str = GRADIENT) -> Work:
        work = super().all_reduce(tensor, op=op, tag=tag)
        if tag == AGREE:
            tensor *= 1 + 1e-15 * self.rank
        return work


def test_ranks_decide_alike_even_where_sums_are_rounded_differently() -> None:
    """The windows' broadcast makes the observation equal, so that pure policies cannot part ways."""
    first, second, third = run_ranks(
        3, lambda comm: seen(comm, agreement=Rounding(comm.rank, comm.size, comm._ranks), spectrum=True)
    )
    assert len(first) == 2
    assert first == second == third


@every_rank(2)
def test_ranks_agree_in_two_collectives_a_window(comm: LoopbackCommunicator) -> None:
    calls, charged = [], comm._charged

    def listening(collective: str, payload: torch.Tensor, tag: str, *tensors: torch.Tensor, **options: Any) -> Work:
        calls.extend([collective] if tag == AGREE else [])
        return charged(collective, payload, tag, *tensors, **options)

    comm._charged = listening  # type: ignore[method-assign]
    seen(comm)
    assert calls == ["all_reduce", "broadcast"] * 2


@every_rank(2)
def test_the_spectrum_is_of_the_windows_last_average(comm: LoopbackCommunicator) -> None:
    exchange = exchange_on(comm, spectrum=True)
    for step in range(4):
        own, _ = step_once(exchange, step)
    averages = {g.name: g.tensor for g in own}
    (observation,) = exchange.policy.seen  # type: ignore[attr-defined]
    assert set(observation.spectrum) == {"layer.weight", "embedding.weight"}
    for name, values in observation.spectrum.items():
        assert values == pytest.approx(torch.linalg.svdvals(averages[name])[:2].tolist(), rel=1e-5)


def test_stages_tell_each_other_entropy_loss_and_backward_time() -> None:
    """Each rank here is a stage of its own; the loss is the last one's."""

    def body(comm: LoopbackCommunicator) -> Observation:
        alone = LoopbackCommunicator(0, 1, comm._ranks)
        names = compressible(SHAPES, Rank)
        aggregator = AGGREGATORS["lowrank"](LowRankSettings(name="lowrank"), seed=3)
        exchange = GradientExchange(aggregator, Watching(), alone, alone, names, stage=comm.rank, stages=comm)
        for step in range(4):
            exchange.begin_round(step)
            exchange.start(gradients(comm.rank, step)).wait()
            exchange.end_round(torch.tensor(float(step) if comm.rank == 1 else 0.0))
            exchange.timed(0.1 * (comm.rank + 1))
        return exchange.policy.seen[0]  # type: ignore[attr-defined]

    first, last = run_ranks(2, body)
    assert first.loss == last.loss == pytest.approx(1.5)
    assert first.backward_seconds == last.backward_seconds == pytest.approx((0.1, 0.2))
    assert first.stage_entropy == last.stage_entropy
    assert first.stage_entropy[0] == pytest.approx(sum(first.entropy.values()) / 2)
    assert first.stage_entropy[1] == pytest.approx(sum(last.entropy.values()) / 2)
    assert first.stage_entropy[1] > first.stage_entropy[0]  # its gradients are twice as large


AMOUNTS: dict[AmountKind, list[Amount]] = {
    Rank: [Rank(2), Rank(2), Rank(4), DENSE, Rank(3)],
    Ratio: [Ratio(0.2), Ratio(0.2), DENSE, Ratio(0.5)],
    Bits: [Bits(4), Bits(4), DENSE, Bits(8)],
    On: [ON, DENSE],
}


def three_buckets(rank: int, step: int) -> list[list[NamedTensor]]:
    """Of one matrix each, whose sizes tell P and Q of all of them apart: 20×10, 30×11, 40×12."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    return [[NamedTensor(f"w{i}", torch.randn(10 + 10 * i, 9 + i, generator=generator))] for i in (1, 2, 3)]


def exchange_of(comm: LoopbackCommunicator, name: str = "lowrank") -> GradientExchange:
    aggregator = AGGREGATORS[name](AGGREGATORS[name].Settings(name=name), seed=3)
    shapes = {g.name: tuple(g.tensor.shape) for bucket in three_buckets(0, 0) for g in bucket}
    return GradientExchange(aggregator, Watching(), comm, comm, shapes)


def exchange_all(exchange: GradientExchange, buckets: list[list[NamedTensor]], step: int, overlap: bool) -> None:
    exchange.begin_round(step)
    under_way = []
    for bucket in buckets:
        pending = exchange.start(bucket)
        if overlap:
            under_way.append(pending)
        else:
            pending.wait()
    for pending in under_way:
        pending.wait()


@pytest.mark.parametrize(
    ("overlap", "order"), [(True, ["P1", "P2", "Q1", "P3", "Q2", "Q3"]), (False, ["P1", "Q1", "P2", "Q2", "P3", "Q3"])]
)
@every_rank(3)
def test_the_order_of_collectives_is_fixed_however_late_a_rank_is(
    comm: LoopbackCommunicator, overlap: bool, order: list[str]
) -> None:
    called = {2 * (10 + 10 * i): f"P{i}" for i in (1, 2, 3)} | {2 * (9 + i): f"Q{i}" for i in (1, 2, 3)}  # by numel
    late, calls, launch = random.Random(comm.rank), [], comm._launch

    def delayed(collective: str, *tensors: torch.Tensor, **options: Any) -> Any:
        time.sleep(late.uniform(0, 0.01))
        calls.append(called[tensors[0].numel()])
        launch(collective, *tensors, **options)
        return lambda: time.sleep(late.uniform(0, 0.01))

    comm._launch = delayed  # type: ignore[method-assign]
    exchange_all(exchange_of(comm), three_buckets(comm.rank, 0), 0, overlap)
    assert calls == order


@pytest.mark.parametrize("name", AGGREGATORS)
@every_rank(2)
def test_overlap_changes_no_bit(comm: LoopbackCommunicator, name: str) -> None:
    """Averages and residuals of buckets under way together are those of one after the other, at changing amounts."""
    kind = AGGREGATORS[name]
    refuses = kind.Settings(name=name).refuses
    amounts = [amount for amount in AMOUNTS[kind.amount] if not refuses(amount)]
    overlapped, in_turn = exchange_of(comm, name), exchange_of(comm, name)
    for exchange in (overlapped, in_turn):
        exchange.policy.decide = lambda step: Decision(amounts[step])  # type: ignore[method-assign]
    for step in range(len(amounts)):
        first, second = three_buckets(comm.rank, step), three_buckets(comm.rank, step)
        exchange_all(overlapped, first, step, overlap=True)
        exchange_all(in_turn, second, step, overlap=False)
        for one, other in zip(itertools.chain(*first), itertools.chain(*second), strict=True):
            assert torch.equal(one.tensor, other.tensor)
            lost, left = (e.aggregator.residual(one.name) for e in (overlapped, in_turn))
            assert (lost is left is None) or torch.equal(lost, left)


@every_rank(1)
def test_what_an_exchange_does_during_backward_is_not_backwards_time(
    comm: LoopbackCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(telemetry.time, "perf_counter", lambda: now)

    def takes(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Takes:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def wait(self) -> None:
            takes(self.seconds)

    def two_phases(*_: Any) -> Exchange:
        takes(1)
        yield Takes(10)
        yield LastPending(Takes(100))

    exchange = exchange_of(comm)
    exchange.aggregator.exchange = two_phases  # type: ignore[method-assign]
    exchange.policy.sampling = None
    exchange.begin_round(0)
    exchange.clock.start()
    with exchange.clock.region("backward"):
        takes(1000)
        under_way = [exchange.start(bucket) for bucket in three_buckets(0, 0)]
    assert now == 1023, "two of the three were advanced"
    for pending in under_way:
        pending.wait()
    assert exchange.clock.stop() == {"other": 0, "backward": 1000, "encode": 33, "decode": 300, "step": 1333}


@every_rank(2)
def test_placement_and_warm_up_hold_for_methods_without_a_number_too(comm: LoopbackCommunicator) -> None:
    """A bf16 wire leaves excluded parameters, and the steps before `start_step`, in fp32."""
    rounded = AGGREGATORS["dense"](DenseSettings(name="dense", wire_dtype="bf16"))
    policy = Fixed(FixedSettings(name="fixed", start_step=1), Context(0, 1, 9, SHAPES))
    exchange = GradientExchange(rounded, policy, comm, comm, compressible(SHAPES, On, ("embedding",)))
    fp32 = 4 * sum(map(math.prod, SHAPES.values()))
    for step, sent in enumerate((fp32, fp32 - 2 * (24 * 16 + 24))):
        step_once(exchange, step)
        assert comm.ledger.take()["gradient"].payload_bytes == sent
