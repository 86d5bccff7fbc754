"""Every aggregator where each rank owns a part of the average."""

from __future__ import annotations

import math

import pytest
import torch

from edgc.core.aggregators.aggregator import AggregatorSettings, Law
from edgc.core.comm import Sharded
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import DENSE
from edgc.core.policies.policy import Decision
from edgc.tools.laws.aggregator_cases import (
    BUCKETS,
    CASES,
    SHAPES,
    TO_OWNERS,
    Values,
    amounts_for,
    case_id,
    every_case,
    make,
    mean_over_ranks,
    payload_depends_on_data,
    random_values,
    residuals,
    step_once,
    tolerance,
)


def sharded_layout() -> Sharded:
    """Three owners, of parts that begin and end inside matrices; one owns next to nothing."""
    numels = {name: math.prod(shape) for name, shape in SHAPES.items()}
    cuts = {name: numel // 3 for name, numel in numels.items()}
    layout = Sharded(
        [{n: (0, cuts[n]) for n in SHAPES}, {n: (cuts[n], numels[n]) for n in SHAPES if n != "bias"}, {"bias": (2, 7)}]
    )
    layout.check(numels, 3)
    return layout


@every_case
def test_an_owner_gets_its_part_of_the_average(settings: AggregatorSettings) -> None:
    """Bit for bit what it gets where the average is needed whole, unless others send it its part only. Bytes are
    foretold either way."""
    amounts, layout = amounts_for(settings), sharded_layout()

    def body(comm: LoopbackCommunicator) -> None:
        whole, sharded = make(settings), make(settings)
        sharded.layout = layout
        for step, amount in enumerate(amounts):
            values = random_values(comm.rank, step, torch.float32)
            expected = step_once(whole, comm, values, amount, step)
            comm.ledger.take()
            actual = step_once(sharded, comm, values, amount, step)
            shapes = [{n: SHAPES[n] for n in names} for names in BUCKETS]
            foretold = sum(sharded.workload_at(step, each, Decision(amount), 3).payload for each in shapes)
            charged = comm.ledger.take()["gradient"].payload_bytes
            assert charged == foretold or (payload_depends_on_data(settings) and charged < foretold)
            for piece in () if settings.name in TO_OWNERS else layout.owned(comm.rank, [*SHAPES]):  # type: ignore[attr-defined]
                mine, theirs = (out[piece.name].reshape(-1)[piece.start : piece.stop] for out in (actual, expected))
                assert torch.equal(mine, theirs)

    run_ranks(3, body)


@pytest.mark.parametrize("settings", [s for s in CASES.values() if s.name in TO_OWNERS], ids=case_id)  # type: ignore[attr-defined]
def test_what_goes_in_comes_out_at_its_owner_or_stays(settings: AggregatorSettings) -> None:
    """mean(gradient + residual before), of each owner's elements, is the owner's output + mean(residual after)."""
    amounts, layout = amounts_for(settings), sharded_layout()

    def body(comm: LoopbackCommunicator) -> list[tuple[Values, Values, Values, Values]]:
        aggregator, seen = make(settings), []
        aggregator.layout = layout
        for step, amount in enumerate(amounts):
            values, before = random_values(comm.rank, step), residuals(aggregator)
            output = step_once(aggregator, comm, values, amount, step)
            seen.append((values, before, output, residuals(aggregator)))
        return seen

    ranks = run_ranks(3, body)
    within = tolerance(settings, torch.float64)
    for step, steps in enumerate(zip(*ranks, strict=True)):
        values, before, outputs, after = zip(*steps, strict=True)
        for name in SHAPES:
            out = torch.full(SHAPES[name], torch.nan, dtype=torch.float64)
            for owner, output in enumerate(outputs):
                for piece in layout.owned(owner, [name]):
                    out.view(-1)[piece.start : piece.stop] = output[name].reshape(-1)[piece.start : piece.stop]
            came_in = mean_over_ranks(values, name) + mean_over_ranks(before, name)
            if Law.CONSERVES in settings.laws:
                went_out = out + mean_over_ranks(after, name)
                torch.testing.assert_close(went_out, came_in, rtol=0, atol=within)
            elif amounts[step] is DENSE:
                torch.testing.assert_close(out, came_in, rtol=0, atol=within)
            assert out.isfinite().all(), "each element has an owner"
