"""Every exchange that a run may come to make, made once before its first step.

On a GPU a first exchange takes longer: kernels are compiled for its ranks, and memory is laid out. None of that belongs
to a step that is timed, nor may it decide what a policy makes of timings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from edgc.core.aggregators.aggregator import Aggregator, NamedTensor
from edgc.core.comm import Communicator
from edgc.core.exchange.candidate_errors import squared_errors
from edgc.core.exchange.entropy import sampled_entropy
from edgc.core.exchange.observation import AGREE
from edgc.core.exchange.turns import UnderWay
from edgc.core.policies.amounts import Amount, Rank
from edgc.core.policies.by_kind import Kind, placed
from edgc.core.policies.policy import Decision, Policy

SMALLEST = 16  #: ranks up to this one share their kernels: `tl.dot` takes no smaller tiles


def rehearse(
    aggregator: Aggregator,
    policy: Policy,
    rounds: Sequence[int],
    buckets: Sequence[Sequence[NamedTensor]],
    names: Collection[str],
    comm: Communicator,
    scale: Mapping[Kind, float] | None = None,
) -> None:
    """Exchange all buckets at every amount whose kernels differ. Collective over `comm`.

    Args:
        aggregator: made for this alone; its state is of no use afterwards.
        rounds: 0-based rounds whose decisions are known beforehand.
        buckets: the tensors that the run will exchange, all 0; they are 0 afterwards.
        names: of these the policy decides.
        scale: by kind of parameter, its amounts as a multiple of the policy's.
    """
    for number, decided in enumerate(decisions(policy, rounds)):
        decision = placed(decided, names, scale or {})
        for round in range(number * aggregator.cycle, (number + 1) * aggregator.cycle):
            for bucket in buckets:
                UnderWay(aggregator.exchange(bucket, decision, comm, round)).wait()
    for bucket in buckets:
        observed = [tensor for tensor in bucket if tensor.name in names]
        if policy.sampling is not None:
            sampled_entropy(observed, policy.sampling)
        if policy.candidates and observed:
            squared_errors(aggregator, observed, policy.candidates, comm, 0, AGREE)


def decisions(policy: Policy, rounds: Sequence[int]) -> Iterator[Decision]:
    """Those of `rounds`, and one of every kind that the policy may come to; growing, so that factors are extended."""
    for round in rounds:
        yield policy.decide(round)
    if policy.span is not None:
        span = ladder(*policy.span)
        yield from map(Decision, span if isinstance(span[0], Rank) else [*dict.fromkeys([*span, *policy.candidates])])


def ladder(lowest: Amount, highest: Amount) -> list[Amount]:
    """Amounts from lowest to highest with which every kernel is met that any in between needs.

    Of ranks those that have a kind of launch which none above has.
    """
    if not isinstance(lowest, Rank) or not isinstance(highest, Rank):
        return [lowest, highest]
    kinds: dict[tuple[int, bool], Amount] = {}
    for rank in range(highest, lowest - 1, -1):
        kinds.setdefault(kind(rank), Rank(rank))
    return [*kinds.values()][::-1]


def kind(rank: int) -> tuple[int, bool]:
    """What launches differ in: how many columns of a factor they have, padded, and whether rows are read in fours."""
    return max(SMALLEST, 1 << (rank - 1).bit_length()), rank % 4 == 0
