"""The sketch beyond the laws of test_conformance*.py: what comes out, what is lost, and the released code's quirks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from edgc.core.aggregators.aggregator import Law
from edgc.core.aggregators.sketch import STEPS, Sketch, SketchPlan, SketchSettings, from_table
from edgc.core.base.errors import UserError
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.ops.packing import unpack
from edgc.core.ops.select import Pool
from edgc.core.policies.amounts import DENSE, Ratio
from edgc.core.policies.policy import Decision
from edgc.suite.config import Method, load
from tests.fixtures.exchanged import exchange_bucket, exchange_one
from tests.fixtures.ranks import every_rank

ELEMENTS = 30_000
RATIO = 0.2
RELEASED = {
    "threshold": "table", "hashing": "block", "elements_per_cell": 2.0, "summed_bits": 1, "unrecovered": "estimate",
    "error_feedback": "unsent",
}  # fmt: skip


def gradient(rank: int, step: int = 0, elements: int = ELEMENTS) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(elements, generator=generator, dtype=torch.float64)


def kept(whole: Tensor, k: int) -> Tensor:
    """All but the k largest in magnitude set to zero: the definition, by a full sort."""
    out = torch.zeros_like(whole)
    order = whole.abs().argsort(descending=True)[:k]
    out[order] = whole[order]
    return out


class Recovery(NamedTuple):
    """How the last bucket came out."""

    union: int  #: elements that a rank or more sent, as the bitmap says
    left: int  #: of these, without an exact value


class Watched(Sketch):
    last: Recovery

    def _recovered(self, plan: SketchPlan, union: Tensor, *others: Any) -> Any:
        marks = union[: plan.bitmap].clone()
        found = super()._recovered(plan, union, *others)
        sent = int(unpack(marks, plan.elements, plan.bits).count_nonzero())
        self.last = Recovery(sent, sent - int(found.exact.sum()))
        return found


def exchanged(size: int, steps: int = 1, made: Callable[[int, int], Tensor] = gradient, **options: Any) -> list[Any]:
    """By rank: the last output, the residual, and what is left of what was sent."""

    def body(comm: LoopbackCommunicator) -> tuple[Any, ...]:
        aggregator = Watched(SketchSettings(name="sketch", **options))
        for step in range(steps):
            output = exchange_one(aggregator, comm, made(comm.rank, step), Ratio(RATIO), step, "x")
        payload = comm.ledger.take()["gradient"].payload_bytes
        asked = aggregator.workload({"x": tuple(output.shape)}, Decision(Ratio(RATIO)), comm.size, 8)
        assert payload == steps * asked.payload
        return output, aggregator.residual("x"), aggregator.last

    ranks = run_ranks(size, body)
    assert all(torch.equal(a[0], b[0]) for a, b in pairwise(ranks))
    return ranks


def oracle(steps: Sequence[Sequence[Tensor]], k: int) -> tuple[Tensor, list[Tensor]]:
    """The whole exchange, if a sketch loses nothing: average of the last step, and every rank's residual."""
    errors = [torch.zeros_like(g) for g in steps[0]]
    for gradients in steps:
        wholes = [g + e for g, e in zip(gradients, errors, strict=True)]
        sent = [kept(whole, k) for whole in wholes]
        errors = [whole - own for whole, own in zip(wholes, sent, strict=True)]
        average = torch.stack(sent).sum(0) / len(sent)
    return average, errors


@pytest.mark.parametrize("size", [2, 3, 4])
def test_with_cells_for_all_that_ranks_may_keep_it_is_top_k(size: int) -> None:
    average, errors = oracle([[gradient(rank, step) for rank in range(size)] for step in range(3)], 6000)
    for (output, residual, last), error in zip(exchanged(size, steps=3), errors, strict=True):
        assert last.left == 0
        assert last.union == int((average != 0).sum())
        torch.testing.assert_close(output, average, rtol=0, atol=1e-12)
        torch.testing.assert_close(residual, error, rtol=0, atol=1e-12)


def test_what_a_small_sketch_does_not_give_back_stays_where_it_was() -> None:
    """At every element: the right average and Top-K's residual, or nothing and all of it still there, on every rank."""
    ranks = exchanged(3, elements_per_cell=2.0)  # a union of half of the elements in half as many cells
    wholes = [gradient(rank) for rank in range(3)]
    average, errors = oracle([wholes], 6000)
    output, _, last = ranks[0]
    lost = (average != 0) & (output == 0)
    assert 0 < last.left == int(lost.sum()) < last.union
    torch.testing.assert_close(output, average.masked_fill(lost, 0), rtol=0, atol=1e-12)
    for (_, residual, _), whole, error in zip(ranks, wholes, errors, strict=True):
        torch.testing.assert_close(residual, torch.where(lost, whole, error), rtol=0, atol=1e-12)


def test_two_that_meet_in_all_cells_do_not_meet_for_ever() -> None:
    """Hashes are new in every exchange: of two elements in two cells a hash, one pair in eight is stuck at first."""

    def body(comm: LoopbackCommunicator) -> list[int]:
        exchanges = []
        for other in range(1, 25):
            aggregator = Sketch(SketchSettings(name="sketch", elements_per_cell=5.0))  # 25 elements: 2 cells a hash
            arrived, tensor = torch.zeros(25), torch.zeros(25).index_fill(0, torch.tensor([0, other]), 1.0)
            for step in range(12):
                arrived += exchange_one(aggregator, comm, tensor, Ratio(0.08), step, "x")
                tensor = torch.zeros(25)
                if arrived.sum() == 2:
                    exchanges.append(step + 1)
                    break
        return exchanges

    first, _ = run_ranks(2, body)
    assert len(first) == 24
    assert max(first) > 1, "none was stuck: this shows nothing"


@pytest.mark.parametrize("feedback", ["all", "unsent"])
def test_only_feedback_of_all_keeps_what_estimates_miss(feedback: str) -> None:
    ranks = exchanged(3, elements_per_cell=2.0, unrecovered="estimate", error_feedback=feedback)
    came_in = torch.stack([gradient(rank) for rank in range(3)]).mean(0)
    went_out = ranks[0][0] + torch.stack([residual for _, residual, _ in ranks]).mean(0)
    off = (went_out - came_in).abs().max()
    assert off < 1e-11 if feedback == "all" else off > 0.1


def test_summed_bits_lose_what_ranks_share_and_spoil_what_comes_out() -> None:
    """TAGC's released bitmap. With OR the same sketch is exact; four bits a rank are, too, up to 15 ranks."""
    average, _ = oracle([[gradient(0), gradient(1)]], 6000)
    both = (kept(gradient(0), 6000) != 0) & (kept(gradient(1), 6000) != 0)
    for bits in (None, 4):
        output, _, last = exchanged(2, summed_bits=bits)[0]
        assert last.union == int((average != 0).sum())
        torch.testing.assert_close(output, average, rtol=0, atol=1e-12)
    output, _, last = exchanged(2, summed_bits=1)[0]
    assert last.union < int((average != 0).sum())
    assert (output[both] == 0).float().mean() > 0.4
    assert not torch.allclose(output[~both], average[~both], atol=1e-3)


@pytest.mark.parametrize("scale", [1e-4, 0.013, 1.0, 40.0])
def test_the_tables_threshold_is_the_entry_below(scale: float) -> None:
    """More is sent than was asked for: with 1, 2, 5 in a decade far from a fifth of a normal gradient."""
    whole = scale * gradient(0)
    error = torch.zeros_like(whole)
    chosen = from_table(Pool(whole, error, 6000))
    threshold = float(chosen.values.abs().min())
    sparsity = [float((whole.abs() < step).double().mean()) for step in STEPS]
    right = next((i for i, share in enumerate(sparsity) if share >= 0.8), len(STEPS))
    assert STEPS[right - 1] <= threshold
    assert len(chosen.values) == int((whole.abs() >= STEPS[right - 1]).sum()) > 6000
    assert torch.equal(whole[chosen.indices], chosen.values)
    assert torch.equal(error.index_add(0, chosen.indices, chosen.values), whole)


def test_the_table_sends_all_of_what_is_sparse_already_and_what_is_not_a_number() -> None:
    whole = kept(gradient(0), 5000)
    assert len(from_table(Pool(whole, None, 6000)).values) == 5000
    whole[3] = torch.nan
    assert 3 in from_table(Pool(whole, None, 6000)).indices


def test_released_settings_promise_nothing_and_ranks_stay_equal() -> None:
    settings = load(Method, "tagc_released").aggregator
    assert {name: getattr(settings, name) for name in RELEASED} == RELEASED
    assert not settings.laws
    ranks = exchanged(3, steps=3, **RELEASED)
    assert all(output.isfinite().all() for output, _, _ in ranks)
    assert Law.CONSERVES in load(Method, "tagc").aggregator.laws
    assert load(Method, "lhc").aggregator.laws == {Law.CONSERVES, Law.EXACT_AT_FULL_AMOUNT}


@every_rank(2)
def test_a_broken_tensor_is_told_by_a_summed_bitmap_too(comm: LoopbackCommunicator) -> None:
    own = {"broken": gradient(comm.rank), "whole": gradient(comm.rank + 9)}
    if comm.rank:
        own["broken"][5] = torch.inf
    found = exchange_bucket(Sketch(SketchSettings(name="sketch", **RELEASED)), comm, own, Ratio(RATIO))
    assert not found["broken"].isfinite().all()
    assert found["whole"].isfinite().all()


def test_small_tensors_and_full_amounts_travel_dense() -> None:
    aggregator = Sketch(SketchSettings(name="sketch", min_numel=100))
    assert aggregator.effective((9, 11), Ratio(0.1)) is DENSE
    assert aggregator.effective((10, 10), Ratio(0.1)) == Ratio(0.1)
    assert aggregator.effective((10, 10), Ratio(0.8)) is DENSE  # 1.3 · .8 cells an element


def test_a_table_without_a_size_and_a_bucket_without_positions_are_refused() -> None:
    with pytest.raises(ValidationError, match="give elements_per_cell"):
        SketchSettings(name="sketch", threshold="table")
    with pytest.raises(UserError, match=r"x: 4294967296 elements.*at most 4294967295.*placement\.exclude"):
        Sketch(SketchSettings(name="sketch")).workload({"x": (2**16, 2**16)}, Decision(Ratio(RATIO)), 2)
