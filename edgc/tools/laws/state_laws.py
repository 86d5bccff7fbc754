"""What every aggregator keeps from step to step: saved, restored and forgotten."""

from __future__ import annotations

import io
import math

import torch

from edgc.core.aggregators.aggregator import AggregatorSettings, forget
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.tools.laws.aggregator_cases import (
    BUCKETS,
    SHAPES,
    amounts_for,
    every_case,
    make,
    random_values,
    residuals,
    step_once,
)


@every_case
def test_saved_and_restored_is_uninterrupted(settings: AggregatorSettings) -> None:
    amounts = amounts_for(settings)

    def body(comm: LoopbackCommunicator) -> None:
        whole, first, second = make(settings), make(settings), make(settings)
        for cut in range(len(amounts)):
            values = random_values(comm.rank, cut, torch.float32)
            expected = step_once(whole, comm, values, amounts[cut], cut)
            actual = step_once(first, comm, values, amounts[cut], cut)
            file = io.BytesIO()
            torch.save(first.state_dict(), file)
            file.seek(0)
            second.load_state_dict(torch.load(file, weights_only=True))
            assert all(torch.equal(expected[name], actual[name]) for name in SHAPES)
            kept, restored = residuals(whole), residuals(second)
            assert kept.keys() == restored.keys()
            assert all(torch.equal(kept[n], restored[n]) and kept[n].dtype == restored[n].dtype for n in kept)
            first, second = second, make(settings)

    run_ranks(2, body)


@every_case
def test_loaded_state_is_a_copy(settings: AggregatorSettings) -> None:
    amount = amounts_for(settings)[0]

    def body(comm: LoopbackCommunicator) -> None:
        original, copy = make(settings), make(settings)
        step_once(original, comm, random_values(comm.rank, 0), amount, 0)
        copy.load_state_dict(original.state_dict())
        before = residuals(original)
        step_once(copy, comm, random_values(comm.rank, 1), amount, 1)
        after = residuals(original)
        assert all(torch.equal(before[name], after[name]) for name in before)

    run_ranks(2, body)


@every_case
def test_what_is_forgotten_was_never_there_and_the_rest_stays(settings: AggregatorSettings) -> None:
    amount = amounts_for(settings)[0]

    def body(comm: LoopbackCommunicator) -> None:
        poisoned, clean, fresh = make(settings), make(settings), make(settings)
        values = random_values(comm.rank, 0, torch.float32)
        step_once(clean, comm, values, amount, 0)
        step_once(poisoned, comm, {**values, "wide": values["wide"] * math.nan}, amount, 0)
        forget(poisoned, BUCKETS[0])
        outputs = [
            step_once(a, comm, random_values(comm.rank, 1, torch.float32), amount, 1) for a in (poisoned, fresh, clean)
        ]
        assert all(torch.equal(outputs[0][name], outputs[1][name]) for name in BUCKETS[0])
        assert all(torch.equal(outputs[0][name], outputs[2][name]) for name in BUCKETS[1])

    run_ranks(2, body)
