"""Gossip on a ring against straight-line implementations, in float64; rings of one, two, odd and even numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from edgc.core.aggregators.draws import draw
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.synchronisation.gossip import edges
from edgc.tools.laws.toy_replica import SHAPES, STEPS, ToyReplica, gradients, parameters, start
from tests.fixtures.ranks import every_rank
from tests.property.test_momentum_methods import STEPS as ITERATIONS
from tests.property.test_momentum_methods import AdamW, Parameters, assert_same, mean, method, own, run

MATRICES = ("0.w", "1.v")
POWERGOSSIP = method("powergossip", policy={"rank": 2})


class PowerIteration:
    """What of a difference crosses an edge in a step: half a power iteration, from what the step before found."""

    def __init__(self, n: str, rank: int, first: int) -> None:
        like = torch.zeros(0, dtype=torch.float64)
        self.odd, both = False, draw(1, first, n, sum(SHAPES[n]), rank, like)
        self.p, self.q = both[: SHAPES[n][0]], both[SHAPES[n][0] :]

    def __call__(self, difference: Tensor) -> Tensor:
        if self.odd:
            self.p, _ = torch.linalg.qr(self.p)
            self.q = difference.T @ self.p
        else:
            self.q, _ = torch.linalg.qr(self.q)
            self.p = difference @ self.q
        self.odd = not self.odd
        return self.p @ self.q.T


def gossip(ranks: int, rank: int | None, gamma: float) -> Iterator[list[Parameters]]:
    """arXiv 2008.01425, algorithm 1, after AdamW's step, for each rank; rank None: the whole difference is sent."""
    pairs = [(e, (e + 1) % ranks) for e in range(ranks if ranks > 2 else ranks - 1)]
    links: dict[Any, Any] = {
        (e, n): PowerIteration(n, rank, 2 * ITERATIONS * e)
        for e in range(len(pairs))
        for n in MATRICES
        if rank is not None
    }
    weight = gamma / (1 + min(2, ranks - 1))
    theta = [{n: value.double() for n, value in start().items()} for _ in range(ranks)]
    adamw = [{n: AdamW() for n in SHAPES} for _ in range(ranks)]
    for step in range(ITERATIONS):
        for state, x, i in zip(adamw, theta, range(ranks), strict=True):
            g = gradients(x, step, i)[1]
            x |= {n: state[n].step(x[n], g[n]) for n in SHAPES}
        before = [dict(x) for x in theta]
        for e, (i, j) in enumerate(pairs):
            for n in SHAPES:
                sent = links.get((e, n), lambda d: d)(before[j][n] - before[i][n])
                theta[i][n] = theta[i][n] + weight * sent
                theta[j][n] = theta[j][n] - weight * sent
        if step == ITERATIONS - 1:
            theta = [{n: mean([x[n] for x in theta]) for n in SHAPES} for _ in range(ranks)]
        yield [dict(x) for x in theta]


@pytest.mark.parametrize(
    ("ranks", "rank", "gamma"),
    [(4, 2, 1.0), (4, None, 1.0), (4, 1, 0.5), (5, 2, 1.0), (3, 1, 1.0), (2, 2, 0.7), (1, 2, 1.0)],
)
def test_it_is_what_its_paper_says(ranks: int, rank: int | None, gamma: float) -> None:
    settings = {"synchronisation": {"consensus": gamma}}
    low = {} if rank is None else {"policy": {"rank": rank}}
    ours = run(method("gossip" if rank is None else "powergossip", **settings, **low), ranks)
    for step, theirs in enumerate(gossip(ranks, rank, gamma)):
        for i, expected in enumerate(theirs):
            assert_same(ours[i][step], expected, (step, i))
    middle = [of[ITERATIONS // 2]["0.w"] for of in ours]
    assert ranks == 1 or not torch.allclose(middle[0], middle[1], rtol=0, atol=1e-6), "replicas are their own"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_edges_make_a_ring_that_both_ends_number_alike(ranks: int) -> None:
    found = {(edge, frozenset((rank, peer))) for rank in range(ranks) for edge, peer in edges(rank, ranks)}
    assert len(found) == len({edge for edge, _ in found}) == (ranks if ranks > 2 else ranks - 1)
    for rank in range(ranks):
        assert len(edges(rank, ranks)) == min(2, ranks - 1)
        assert rank not in [peer for _, peer in edges(rank, ranks)]


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_bytes_are_a_neighbours_and_not_the_groups(ranks: int) -> None:
    """Per edge one factor of each matrix in turns, and the vector; the mean at the end is counted by itself."""

    def body(comm: LoopbackCommunicator) -> None:
        replica = ToyReplica(comm, POWERGOSSIP.synchronisation, POWERGOSSIP)  # type: ignore[arg-type]
        for step in range(STEPS):
            replica.step(step)
            charges = comm.ledger.take()
            factors = sum(2 * SHAPES[n][step % 2] for n in MATRICES)
            sent = neighbours * 4 * (factors + SHAPES["0.b"][0])
            assert (charges["gradient"].payload_bytes, charges["gradient"].wire_bytes) == (sent, sent)
            assert charges["agree"].payload_bytes == 8 * neighbours + 8 * (step == STEPS - 1)
            assert ("parameters" in charges) == (step == STEPS - 1)
        assert charges["parameters"].payload_bytes == 4 * sum(map(math.prod, SHAPES.values()))

    neighbours = min(2, ranks - 1)
    run_ranks(ranks, body)


@every_rank(5)
def test_all_ranks_of_a_ring_stop_in_the_same_step_without_a_collective(comm: LoopbackCommunicator) -> None:
    """Half a ring after one rank's gradient was not finite; its step is left out."""
    replica = ToyReplica(comm, POWERGOSSIP.synchronisation, POWERGOSSIP)  # type: ignore[arg-type]
    finite = [math.isfinite(replica.step(step, poison=step == 3 and comm.rank == 1)) for step in range(6)]
    assert finite == [True] * 5 + [False]
    assert all(bool(v.isfinite().all()) for v in replica.parameters.values())


def test_evaluation_sees_the_mean_of_replicas() -> None:
    found = run(POWERGOSSIP, 3, 4, lambda replica: (own(replica), parameters(replica)))
    for n in SHAPES:
        torch.testing.assert_close(found[0][2][1][n], mean([steps[2][0][n] for steps in found]))


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("acpsgd", {}, "error_feedback: false"),
        ("topk", {"aggregator": {"error_feedback": False}}, "linear"),
        ("powersgd_bf16", {"aggregator": {"error_feedback": False}}, "fp32"),
        ("edgc", {"aggregator": {"error_feedback": False}, "policy": {"alignment": False}}, "fixed"),
        ("dense_overlap", {}, "another time"),
    ],
)
def test_parts_that_do_not_fit_are_refused(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        method(name, **changes, synchronisation={"name": "gossip"})
