"""Every exchange that a run may come to make, made once before its first step.

On a GPU a first exchange takes longer: kernels are compiled for its ranks, and memory is laid out. None of that belongs
to a step that is timed, nor may it decide what a policy makes of timings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edgc.aggregators.aggregator import Aggregator, NamedTensor
from edgc.comm import Communicator
from edgc.exchange.entropy import sampled_entropy
from edgc.exchange.observation import AGREE
from edgc.exchange.turns import UnderWay
from edgc.policies.amounts import DENSE, Amount, Rank
from edgc.policies.policy import Decision, Policy

SMALLEST = 16  #: ranks up to this one share their kernels: `tl.dot` takes no smaller tiles


def rehearse(
    aggregator: Aggregator,
    policy: Policy,
    steps: Sequence[int],
    buckets: Sequence[Sequence[NamedTensor]],
    shapes: Mapping[str, tuple[int, ...]],
    comm: Communicator,
) -> None:
    """Exchange all buckets at every amount whose kernels differ. Collective over `comm`.

    Args:
        aggregator: made for this alone; its state is of no use afterwards.
        steps: 0-based steps whose decisions are known beforehand.
        buckets: the tensors that the run will exchange, all 0; they are 0 afterwards.
        shapes: of these the policy decides.
    """
    for number, decided in enumerate(decisions(policy, steps)):
        amounts = {name: aggregator.effective(shape, decided.amount(name)) for name, shape in shapes.items()}
        for bucket in buckets:
            UnderWay(aggregator.exchange(bucket, Decision(DENSE, amounts), comm, number)).wait()
    for bucket in buckets:
        observed = [tensor for tensor in bucket if tensor.name in shapes]
        if policy.sampling is not None:
            sampled_entropy(observed, policy.sampling)
        if policy.candidates and observed:
            aggregator.squared_errors(observed, policy.candidates, comm, 0, AGREE)


def decisions(policy: Policy, steps: Sequence[int]) -> Iterator[Decision]:
    """Those of `steps`, and one of every kind that the policy may come to; growing, so that factors are extended."""
    for step in steps:
        yield policy.decide(step)
    if policy.span is not None:
        span = ladder(*policy.span)
        yield from map(Decision, span if isinstance(span[0], Rank) else [*dict.fromkeys([*span, *policy.candidates])])


def ladder(lowest: Amount, highest: Amount) -> list[Amount]:
    """Amounts from lowest to highest with which every kernel is met that any in between needs.

    Of ranks, for each power of two that tiles are padded to, the highest that is a multiple of 4, as rows of such
    factors are read four at a time, and the highest that is not.
    """
    if not isinstance(lowest, Rank) or not isinstance(highest, Rank):
        return [lowest, highest]
    found: list[Amount] = []
    floor, size = 0, SMALLEST
    while floor < highest:
        inside = range(max(lowest, floor + 1), min(highest, size) + 1)
        of_four, others = [r for r in inside if r % 4 == 0], [r for r in inside if r % 4]
        found += [Rank(rank) for rank in sorted(r[-1] for r in (of_four, others) if r)]
        floor, size = size, 2 * size
    return found
