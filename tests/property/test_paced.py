"""Outer steps that time themselves: H by its rule, agreed on, resumed, and counted."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.comm.telemetry import StepClock
from edgc.core.synchronisation.paced import PacedSettings
from edgc.suite.config import Method, load
from edgc.tools.laws.toy_replica import STEPS, ToyReplica, parameters, same
from tests.fixtures.ranks import every_rank


class Told(StepClock):
    """A clock that a test moves."""

    time = 0.0

    def now(self) -> float:
        return self.time


def paced(**changes: Any) -> PacedSettings:
    return PacedSettings(**({"name": "paced", "every": 2, "share": 0.25, "lowest": 1, "highest": 6} | changes))


@pytest.mark.parametrize(
    ("exchange", "step", "expected"),
    [(1.0, 1.0, 3), (1.0, 0.5, 6), (0.1, 1.0, 1), (0.34, 1.0, 2), (100.0, 1.0, 6), (1.0, 0.0, 6), (0.0, 1.0, 1)],
)
def test_exchanges_take_the_share_as_far_as_the_bounds_allow(exchange: float, step: float, expected: int) -> None:
    settings = paced()
    steps = settings.local_steps(exchange, step)
    assert steps == expected
    if settings.lowest < steps < settings.highest:
        assert exchange / (exchange + steps * step) <= settings.share
        assert exchange / (exchange + (steps - 1) * step) > settings.share


#: Seconds of the exchanges of a run of 11 steps whose local steps take 1 s: H = 3 T, at most 6.
EXCHANGES = [1.0, 0.3, 1.4, 0.1, 0.1, 0.1]
MET = [1, 4, 5, 10]  #: the steps that end in one: after 2 steps, 3, 1, 5, and with the last one


def timed_replica(comm: LoopbackCommunicator, done: int = 0, **changes: Any) -> ToyReplica:
    """Rank 1 computes for 0.4 s a step and then waits: its exchanges look 0.6 s longer. `done`: exchanges so far."""
    comm.ledger.clock = clock = Told()
    replica = ToyReplica(comm, paced(**changes), "dense")
    step, start = replica.optimizer.step, replica.exchange.start
    exchanges = iter(EXCHANGES[done:])

    def optimizer_step() -> None:
        clock.time += (1.0, 0.4)[comm.rank]
        step()

    def start_bucket(bucket: Any, **options: Any) -> Any:
        if bucket[0].name == replica.buckets[0][0].name:
            clock.time += next(exchanges) + (0.0, 0.6)[comm.rank]
        return start(bucket, **options)

    replica.optimizer.step, replica.exchange.start = optimizer_step, start_bucket  # type: ignore[method-assign, assignment]
    return replica


def test_ranks_meet_when_the_slowest_steps_and_the_fastest_exchange_say_so() -> None:
    def body(comm: LoopbackCommunicator) -> list[dict[str, float]]:
        replica, told = timed_replica(comm), []
        for step in range(STEPS):
            replica.step(step)
            told.append(dict(replica.synchronisation.measured))
        return told

    told, others = run_ranks(2, body)
    assert told == others
    assert [step for step in range(STEPS) if told[step]] == MET
    assert [told[step]["local_steps"] for step in MET] == [2, 3, 1, 5]
    assert [told[step]["exchange_s"] for step in MET] == pytest.approx(EXCHANGES[:4])
    assert [told[step]["local_step_s"] for step in MET] == pytest.approx([1.0] * 4)


@pytest.mark.parametrize("cut", range(1, STEPS))
@every_rank(2)
def test_a_resumed_run_meets_when_the_uninterrupted_one_does(comm: LoopbackCommunicator, cut: int) -> None:
    """And has the same parameters, bit for bit, if its timings are the same."""
    whole = timed_replica(comm)
    for step in range(STEPS):
        whole.step(step)
    first = timed_replica(comm)
    for step in range(cut):
        first.step(step)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = timed_replica(comm, done=sum(step < cut for step in MET))
    second.load_state_dict(torch.load(file, weights_only=True))
    met = []
    for step in range(cut, STEPS):
        second.step(step)
        met += [step] if second.synchronisation.measured else []
    assert met == [step for step in MET if step >= cut]
    assert same(parameters(whole), parameters(second))


def test_a_policy_that_must_know_the_number_of_exchanges_is_refused() -> None:
    plain = load(Method, "diloco_paced").model_dump()
    adaptive = {"aggregator": {"name": "lowrank"}, "policy": {"name": "accordion", "ranks": [2, 4]}}
    with pytest.raises(UserError, match="policy accordion has to know how many"):
        validate(Method, merge(plain, adaptive), "method")


def test_the_first_h_is_within_the_bounds() -> None:
    with pytest.raises(UserError, match="every 9 must be from lowest 1 to highest 6"):
        validate(PacedSettings, {"name": "paced", "every": 9, "highest": 6}, "synchronisation")
