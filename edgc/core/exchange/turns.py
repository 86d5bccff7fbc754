"""The order in which exchanges under way launch and decode: one place for training and for the cluster model. No torch.

Where several buckets are under way, a bucket's start also launches what is left of the one before it: P1, P2, Q1, P3,
Q2, … of an exchange with two collectives, so that while the host waits for P1 and prepares Q1 the network carries P2.
The order is fixed. If a rank launched what happens to be ready, the ranks' collectives would not match.
"""

from __future__ import annotations

from edgc.core.aggregators.aggregator import Exchange, LastPending
from edgc.core.comm import Work


class UnderWay:
    """One exchange, encoded and launched."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._awaited: Work | None = next(exchange, None)

    def advance(self) -> None:
        """Go on until the last collective is launched, waiting for those before it. Idempotent."""
        while self._awaited is not None and not isinstance(self._awaited, LastPending):
            self._resume()

    def wait(self) -> None:
        """Go on to the end: the tensors hold the average. Idempotent."""
        while self._awaited is not None:
            self._resume()

    def _resume(self) -> None:
        assert self._awaited is not None
        self._awaited.wait()
        self._awaited = next(self._exchange, None)


class Turns:
    """All exchanges under way, in the order of their start."""

    def __init__(self) -> None:
        self._under_way: list[UnderWay] = []

    def start(self, exchange: Exchange, launch_previous: bool = True) -> UnderWay:
        """Encode and launch one more, and launch what is left of the one before it.

        `launch_previous=False`: P1, P2, P3, …, and the rest with `advance`, for whoever must not wait here.
        """
        begun = UnderWay(exchange)
        if self._under_way and launch_previous:
            self._under_way[-1].advance()
        self._under_way.append(begun)
        return begun

    def advance(self) -> None:
        """Launch what is left of all, in order: the last is in flight while the first is decoded."""
        for exchange in self._under_way:
            exchange.advance()

    def finish(self, exchange: UnderWay) -> None:
        """Decode one that all were launched with (`advance`); it is no longer under way."""
        exchange.wait()
        self._under_way = [other for other in self._under_way if other is not exchange]
