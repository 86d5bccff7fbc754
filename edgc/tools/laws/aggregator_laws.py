"""Laws that every registered aggregator keeps, with every option and in every method's configuration.

Of averages; of costs (payload, state, phases, and errors that it looks at); where each rank owns a part of the average;
and of what is kept from step to step: saved, restored and forgotten.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from copy import deepcopy

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import Aggregator, AggregatorSettings, LastPending, Law, NamedTensor, forget
from edgc.core.comm import Sharded
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.candidate_errors import errors_workload, squared_errors
from edgc.core.exchange.turns import UnderWay
from edgc.core.policies.amounts import DENSE, Amount, Rank
from edgc.core.policies.policy import Decision
from edgc.tools.laws.aggregator_cases import (
    BUCKETS,
    CASES,
    FULL,
    SHAPES,
    Buckets,
    Values,
    amounts_for,
    buckets_of,
    case_id,
    every_case,
    every_case_of,
    make,
    mean_over_ranks,
    payload_depends_on_data,
    random_values,
    residuals,
    rounds_at_owners,
    step_once,
    tolerance,
)


@every_case
@pytest.mark.parametrize("size", [2, 3])
def test_what_goes_in_comes_out_or_stays_in_the_residual(settings: AggregatorSettings, size: int) -> None:
    """mean(gradient + residual before) = output + mean(residual after), in float64, while amounts and buckets
    change from step to step, through dense steps and steps of zeros."""
    amounts = amounts_for(settings)
    regrouped: Buckets = (("column", "twin", "bias"), tuple(n for n in SHAPES if n not in ("column", "twin", "bias")))

    def body(comm: LoopbackCommunicator) -> list[tuple[Values, Values, Values, Values]]:
        aggregator, seen = make(settings), []
        for step, amount in enumerate(amounts):
            values = random_values(comm.rank, step)
            if step == 1:
                values = {name: torch.zeros_like(value) for name, value in values.items()}
            before = residuals(aggregator)
            output = step_once(aggregator, comm, values, amount, step, regrouped if step % 2 else BUCKETS)
            seen.append((values, before, output, residuals(aggregator)))
        return seen

    ranks = run_ranks(size, body)
    for steps in zip(*ranks, strict=True):
        values, before, outputs, after = zip(*steps, strict=True)
        for name in SHAPES:
            assert all(torch.equal(outputs[0][name], output[name]) for output in outputs[1:]), "ranks differ"
            if Law.CONSERVES in settings.laws:
                came_in = mean_over_ranks(values, name) + mean_over_ranks(before, name)
                went_out = outputs[0][name] + mean_over_ranks(after, name)
                torch.testing.assert_close(went_out, came_in, rtol=0, atol=tolerance(settings, torch.float64))


@every_case
def test_float32_results_are_equal_bit_for_bit_on_all_ranks(settings: AggregatorSettings) -> None:
    amounts = amounts_for(settings)

    def body(comm: LoopbackCommunicator) -> list[Values]:
        aggregator = make(settings)
        return [
            step_once(aggregator, comm, random_values(comm.rank, step, torch.float32), amount, step)
            for step, amount in enumerate(amounts)
        ]

    first, *others = run_ranks(3, body)
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert all(torch.equal(a[name], b[name]) for name in SHAPES)


@every_case_of(Law.EXACT_AT_FULL_AMOUNT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_full_amount_is_the_average(settings: AggregatorSettings, dtype: torch.dtype) -> None:
    """Full rank, all elements: the same as an all-reduce, up to the rounding of gradient and wire."""
    if "min_compression_ratio" in type(settings).model_fields:
        settings = settings.model_copy(update={"min_compression_ratio": 0.0})
    amount = AGGREGATORS[settings.name].amount  # type: ignore[attr-defined]
    # Where P does not span all rows whatever it is, a random first factor amplifies the rounding of P, too.
    rounds_factors = amount is Rank and getattr(settings, "wire_dtype", "fp32") == "bf16"
    amplified = {n for n, shape in SHAPES.items() if rounds_factors and _is_tall(shape)}

    def body(comm: LoopbackCommunicator) -> tuple[list[Values], list[Values]]:
        aggregator = make(settings)
        values = [random_values(comm.rank, step, dtype) for step in range(3)]
        return values, [step_once(aggregator, comm, v, FULL[amount], step) for step, v in enumerate(values)]  # type: ignore[return-value]

    (values, outputs), (other, _) = run_ranks(2, body)
    for mine, theirs, output in zip(values, other, outputs, strict=True):
        for name in SHAPES.keys() - amplified:
            expected = (mine[name].double() + theirs[name].double()) / 2
            torch.testing.assert_close(output[name].double(), expected, rtol=0, atol=tolerance(settings, dtype))


@every_case_of(Law.LINEAR)
def test_a_linear_exchange_gives_what_ranks_that_all_hold_the_mean_would_get(settings: AggregatorSettings) -> None:
    def body(comm: LoopbackCommunicator) -> tuple[list[Values], list[Values]]:
        found: list[list[Values]] = []
        for same in (False, True):
            aggregator, seen = make(settings), []
            for step, amount in enumerate(amounts_for(settings)):
                of_ranks = [random_values(rank, step) for rank in range(comm.size)]
                values = {n: mean_over_ranks(of_ranks, n) for n in SHAPES} if same else of_ranks[comm.rank]
                seen.append(step_once(aggregator, comm, values, amount, step))
            found.append(seen)
        return found[0], found[1]

    ((own, means), *_) = run_ranks(3, body)
    for one, other in zip(own, means, strict=True):
        for name in SHAPES:
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=tolerance(settings, torch.float64))


def _is_tall(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] > shape[1]


@every_case
def test_zeros_stay_zeros_and_do_not_kill_what_follows(settings: AggregatorSettings) -> None:
    amount = amounts_for(settings)[0]

    def body(comm: LoopbackCommunicator) -> tuple[Values, Values]:
        aggregator = make(settings)
        zeros = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
        for step in range(2):
            nothing = step_once(aggregator, comm, zeros, amount, step)
        values = random_values(comm.rank, 2, torch.float32)
        return nothing, step_once(aggregator, comm, values, amount, 2)

    nothing, something = run_ranks(2, body)[0]
    assert all(not value.any() for value in nothing.values())
    assert all(value.isfinite().all() for value in something.values())
    assert all(value.any() for value in something.values() if value.numel())


@every_case
@pytest.mark.parametrize(
    ("name", "poison"), [("wide", math.nan), ("twin", math.inf), ("bias", math.nan), ("cube", math.inf)]
)
def test_a_non_finite_gradient_is_seen_by_all_ranks_and_stays_in_its_tensor(
    settings: AggregatorSettings, name: str, poison: float
) -> None:
    amount = amounts_for(settings)[0]

    def body(comm: LoopbackCommunicator) -> Values:
        values = random_values(comm.rank, 0, torch.float32)
        if comm.rank == 1:
            values[name].view(-1)[3] = poison
        return step_once(make(settings), comm, values, amount, 0)

    for output in run_ranks(2, body):
        assert not output[name].isfinite().all()
        assert all(value.isfinite().all() for other, value in output.items() if other != name)


@every_case
def test_a_group_of_one_changes_and_charges_nothing(settings: AggregatorSettings) -> None:
    amount = amounts_for(settings)[0]

    def body(comm: LoopbackCommunicator) -> None:
        aggregator, values = make(settings), random_values(0, 0, torch.float32)
        output = step_once(aggregator, comm, values, amount, 0)
        assert all(torch.equal(output[name], values[name]) for name in SHAPES)
        assert not residuals(aggregator)
        assert not comm.ledger.take()

    run_ranks(1, body)


@every_case
def test_a_bucket_may_be_empty(settings: AggregatorSettings) -> None:
    amount = amounts_for(settings)[0]

    def body(comm: LoopbackCommunicator) -> None:
        step_once(make(settings), comm, random_values(0, 0), amount, 0, ((), ("empty", "hollow")))
        assert not comm.ledger.take()

    run_ranks(2, body)


@every_case
def test_order_of_names_does_not_matter(settings: AggregatorSettings) -> None:
    amounts = amounts_for(settings)
    backwards = [list(reversed(names)) for names in reversed(BUCKETS)]

    def body(comm: LoopbackCommunicator) -> None:
        straight, reverse = make(settings), make(settings)
        for step, amount in enumerate(amounts):
            values = random_values(comm.rank, step)
            a = step_once(straight, comm, values, amount, step)
            b = step_once(reverse, comm, values, amount, step, backwards)
            for name in SHAPES if not rounds_at_owners(settings) else ():
                torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-10)
        assert residuals(straight).keys() == residuals(reverse).keys()

    run_ranks(2, body)


@every_case
def test_memory_layout_does_not_matter(settings: AggregatorSettings) -> None:
    """Separate and transposed tensors give what views into one buffer give."""
    amounts = amounts_for(settings)

    def body(comm: LoopbackCommunicator) -> None:
        packed, loose = make(settings), make(settings)
        for step, amount in enumerate(amounts):
            values = random_values(comm.rank, step)
            expected = step_once(packed, comm, values, amount, step)
            actual = {n: v.t().contiguous().t() if v.ndim == 2 else v.clone() for n, v in values.items()}
            for names in BUCKETS:
                bucket = [NamedTensor(name, actual[name]) for name in names]
                UnderWay(loose.exchange(bucket, Decision(amount), comm, step)).wait()
            for name in SHAPES:
                torch.testing.assert_close(actual[name], expected[name], rtol=0, atol=1e-10)

    run_ranks(2, body)


@every_case
def test_advancing_early_changes_nothing(settings: AggregatorSettings) -> None:
    """A bucket that is advanced when the next one starts, or twice, gives what one gives that is only waited for."""
    amounts = amounts_for(settings)

    def body(comm: LoopbackCommunicator) -> None:
        plain, early = make(settings), make(settings)
        for step, amount in enumerate(amounts):
            values = random_values(comm.rank, step)
            expected = step_once(plain, comm, values, amount, step)
            first, second = buckets_of(values)
            pending = [UnderWay(early.exchange(first, Decision(amount), comm, step))]
            pending[0].advance()
            pending.append(UnderWay(early.exchange(second, Decision(amount), comm, step)))
            for exchange in (pending[0], pending[1], *pending):
                exchange.advance()
            for exchange in pending:
                exchange.wait()
            assert all(torch.equal(g.tensor, expected[g.name]) for g in (*first, *second))

    run_ranks(2, body)


@every_case_of(Law.UNBIASED)
def test_unbiased_where_it_promises_to_be(settings: AggregatorSettings) -> None:
    """The mean over many seeds comes within five standard errors of the average, element by element."""
    kind, seeds = AGGREGATORS[settings.name], 200  # type: ignore[attr-defined]
    amount = amounts_for(settings)[0]

    def body(comm: LoopbackCommunicator) -> tuple[Values, Tensor]:
        values = {"wide": random_values(comm.rank, 0, torch.float32)["wide"]}
        outputs = []
        for seed in range(seeds):
            tensor = NamedTensor("wide", values["wide"].clone())
            exchange = kind(settings, seed=seed).exchange([tensor], Decision(amount), comm, 0)
            UnderWay(exchange).wait()
            outputs.append(tensor.tensor)
        return values, torch.stack(outputs)

    (mine, outputs), (theirs, _) = run_ranks(2, body)
    expected = (mine["wide"] + theirs["wide"]) / 2
    error = outputs.std(0) / seeds**0.5
    assert ((outputs.mean(0) - expected).abs() <= 5 * error + 1e-6).all()


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
def test_describes_itself_and_can_be_copied(settings: AggregatorSettings) -> None:
    """Where several exchanges are under way at once, and before the first one, copies do the work."""
    cls = AGGREGATORS[settings.name]  # type: ignore[attr-defined]
    assert deepcopy(make(settings)).settings == settings
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


def sharded_layout() -> Sharded:
    """Three owners, of parts that begin and end inside matrices; one owns next to nothing."""
    numels = {name: math.prod(shape) for name, shape in SHAPES.items()}
    cuts = {name: numel // 3 for name, numel in numels.items()}
    return Sharded(
        [{n: (0, cuts[n]) for n in SHAPES}, {n: (cuts[n], numels[n]) for n in SHAPES if n != "bias"}, {"bias": (2, 7)}]
    )


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
            for piece in () if settings.averages_for_owners else layout.owned(comm.rank, [*SHAPES]):
                mine, theirs = (out[piece.name].reshape(-1)[piece.start : piece.stop] for out in (actual, expected))
                assert torch.equal(mine, theirs)

    run_ranks(3, body)


@pytest.mark.parametrize("settings", [s for s in CASES.values() if s.averages_for_owners], ids=case_id)
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
