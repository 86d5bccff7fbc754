"""Laws of averages that every registered aggregator keeps, with every option and in every method's configuration."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import AggregatorSettings, Law, NamedTensor
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.turns import UnderWay
from edgc.core.policies.amounts import Bits, Rank
from edgc.core.policies.policy import Decision
from edgc.tools.laws.aggregator_cases import (
    BUCKETS,
    FULL,
    SHAPES,
    Buckets,
    Values,
    amounts_for,
    buckets_of,
    every_case,
    make,
    mean_over_ranks,
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


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_full_amount_is_the_average(settings: AggregatorSettings, dtype: torch.dtype) -> None:
    """Full rank, all elements: the same as an all-reduce, up to the rounding of gradient and wire."""
    if "min_compression_ratio" in type(settings).model_fields:
        settings = settings.model_copy(update={"min_compression_ratio": 0.0})
    amount = AGGREGATORS[settings.name].amount  # type: ignore[attr-defined]
    if Law.EXACT_AT_FULL_AMOUNT not in settings.laws:
        return
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


@every_case
def test_a_linear_exchange_gives_what_ranks_that_all_hold_the_mean_would_get(settings: AggregatorSettings) -> None:
    if Law.LINEAR not in settings.laws:
        return

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
@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["wide", "twin", "bias", "cube"])
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


@every_case
def test_unbiased_where_it_promises_to_be(settings: AggregatorSettings) -> None:
    """The mean over many seeds comes within five standard errors of the average, element by element."""
    if Law.UNBIASED not in settings.laws:
        return
    kind, seeds = AGGREGATORS[settings.name], 200  # type: ignore[attr-defined]
    amount = amounts_for(settings)[0] if kind.amount is Bits else FULL[kind.amount]

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
