"""What every aggregator says of its costs is what it costs: payload, state, phases, and errors that it looks at."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import Aggregator, AggregatorSettings, LastPending
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.candidate_errors import errors_workload, squared_errors
from edgc.core.policies.amounts import DENSE, Amount
from edgc.core.policies.policy import Decision
from edgc.tools.laws.aggregator_cases import (
    BUCKETS,
    CASES,
    FULL,
    SHAPES,
    amounts_for,
    buckets_of,
    case_id,
    every_case,
    make,
    payload_depends_on_data,
    random_values,
    step_once,
)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_payload_and_state_are_those_of_their_formulas(settings: AggregatorSettings, dtype: torch.dtype) -> None:
    """After exchanges of one amount, and after those of a smaller one that follow."""
    amounts, buckets = amounts_for(settings), [{n: SHAPES[n] for n in names} for names in BUCKETS]

    def body(comm: LoopbackCommunicator) -> None:
        aggregator = make(settings)
        for step, amount in enumerate(amounts):
            step_once(aggregator, comm, random_values(comm.rank, step, dtype), amount, step)
            works = [aggregator.workload_at(step, each, Decision(amount), 2, dtype.itemsize) for each in buckets]
            expected = sum(work.payload for work in works)
            charged = comm.ledger.take()["gradient"].payload_bytes
            assert charged == expected or (payload_depends_on_data(settings) and charged < expected)
            foretold = {n: aggregator.effective(s, amount) for n, s in SHAPES.items()}
            kept = sum(aggregator.state_bytes(each, Decision(DENSE, foretold), dtype.itemsize) for each in buckets)
            assert _state_bytes(aggregator) == kept + _left_over(aggregator, foretold, dtype)

    run_ranks(2, body)


def _state_bytes(aggregator: Aggregator) -> int:
    tensors = [tensor for by_name in aggregator.state_dict().values() for tensor in by_name.values()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _left_over(aggregator: Aggregator, amounts: Mapping[str, Amount], dtype: torch.dtype) -> int:
    """Bytes of warm factors and metrics of what now travels dense: kept, for when it is compressed again."""
    kept = [t for kind in ("factors", "metric") for t in aggregator.state_dict().get(kind, {}).items()]
    return sum(t.numel() * t.element_size() for n, t in kept if amounts[n] is DENSE)


@every_case
def test_describes_itself(settings: AggregatorSettings) -> None:
    cls = AGGREGATORS[settings.name]  # type: ignore[attr-defined]
    assert cls.state_size
    assert cls.payload_formula
    assert all(info.description for name, info in cls.Settings.model_fields.items() if name != "name")


@every_case
def test_yields_once_a_phase_of_its_workload_and_marks_the_last(settings: AggregatorSettings) -> None:
    """Training and the cluster model are driven by the same order: a phase must be what is done up to a yield."""
    amounts = amounts_for(settings)

    def body(comm: LoopbackCommunicator) -> None:
        aggregator = make(settings)
        for step, amount in enumerate(amounts):
            for bucket in buckets_of(random_values(comm.rank, step)):
                shapes = {t.name: SHAPES[t.name] for t in bucket}
                phases, awaited = aggregator.workload_at(step, shapes, Decision(amount), comm.size, 8).phases, []
                for work in aggregator.exchange(bucket, Decision(amount), comm, step):
                    phase = phases[len(awaited)]
                    assert comm.ledger.take()["gradient"].calls == sum(m.payload > 0 for m in phase.messages)
                    work.wait()
                    awaited.append(isinstance(work, LastPending))
                assert awaited == [False] * (len(phases) - 1) + [True]

    run_ranks(2, body)


@pytest.mark.parametrize("settings", [s for s in CASES.values() if s.tells_errors], ids=case_id)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_it_tells_what_amounts_lose_and_leaves_no_trace(settings: AggregatorSettings, dtype: torch.dtype) -> None:
    """Nothing at the full amount. Exchanges are what they would be; bytes are those of its workload."""
    full = FULL[AGGREGATORS[settings.name].amount]  # type: ignore[attr-defined]
    amounts = [amount for amount in amounts_for(settings) if amount is not DENSE] + [full]

    def body(comm: LoopbackCommunicator) -> None:
        looking, blind = make(settings), make(settings)
        for step in range(2):
            values = random_values(comm.rank, step, dtype)
            for bucket in buckets_of(values):
                comm.ledger.take()
                told = squared_errors(looking, bucket, amounts, comm, step, "agree")
                charged = comm.ledger.take()
                shapes = {t.name: tuple(t.tensor.shape) for t in bucket}
                workload = errors_workload(looking, shapes, amounts, values["wide"].element_size())
                assert sum(account.payload_bytes for account in charged.values()) == workload.payload
                assert set(charged) <= {"agree"}
                for name, table in told.items():
                    assert table.dtype is torch.float64
                    assert table.shape == (1 + len(amounts),)
                    assert table[-1] == 0, name
                    assert (table >= 0).all(), name
            ours, theirs = (step_once(each, comm, values, amounts[0], step) for each in (looking, blind))
            assert all(torch.equal(ours[name], theirs[name]) for name in SHAPES)

    run_ranks(2, body)
