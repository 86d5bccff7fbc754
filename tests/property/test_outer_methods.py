"""DiLoCo, Streaming DiLoCo, MuLoCo's compression and SparseLoCo against straight-line implementations, in float64.

Four ranks, 25 steps of the small model of `toy_replica`; nothing but the model and the data is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import pytest
import torch
from torch import Tensor

from edgc.tools.laws.toy_replica import SHAPES, gradients, parameters, start
from tests.property.test_momentum_methods import RANKS, STEPS, AdamW, Parameters, assert_same, mean, method, own, run

State = tuple[Parameters, list[Parameters]]  #: θ_global, and each rank's parameters


def trained(name: str, ranks: int = RANKS, **changes: Any) -> list[State]:
    """After each step; θ_global is what evaluation sees. Bytes are none where there is one rank."""
    found = []
    for step in zip(*run(method(name, **changes), ranks, shown=lambda r: (parameters(r), own(r))), strict=True):
        shown, apart = zip(*step, strict=True)
        assert all(torch.equal(shown[0][n], other[n]) for other in shown for n in SHAPES)
        found.append((shown[0], [*apart]))
    return found


class Replicas:
    """AdamW on every rank by itself; θ_global, and what ranks differ from it by."""

    def __init__(self, ranks: int = RANKS) -> None:
        self.world = {n: value.double() for n, value in start().items()}
        self.own = [dict(self.world) for _ in range(ranks)]
        self._adamw = [{n: AdamW() for n in SHAPES} for _ in range(ranks)]

    def steps(self) -> Iterator[int]:
        for step in range(STEPS):
            for rank, (theta, adamw) in enumerate(zip(self.own, self._adamw, strict=True)):
                found = gradients(theta, step, rank)[1]
                self.own[rank] = {n: adamw[n].step(theta[n], found[n]) for n in SHAPES}
            yield step

    def differences(self, n: str) -> list[Tensor]:
        return [self.world[n] - theta[n] for theta in self.own]

    def state(self) -> State:
        return dict(self.world), [dict(theta) for theta in self.own]


def diloco(every: int, eta: float, mu: float, average: Callable[[str, list[Tensor]], Tensor], ranks: int) -> Any:
    """arXiv 2311.08105, algorithm 1, whose mean of the differences is `average`."""
    replicas, v = Replicas(ranks), {n: torch.zeros(s, dtype=torch.float64) for n, s in SHAPES.items()}
    for step in replicas.steps():
        if (step + 1) % every == 0 or step + 1 == STEPS:
            for n in SHAPES:
                delta = average(n, replicas.differences(n))
                v[n] = mu * v[n] + delta
                replicas.world[n] = replicas.world[n] - eta * (delta + mu * v[n])
                for theta in replicas.own:
                    theta[n] = replicas.world[n]
        yield replicas.state()


def plain(n: str, differences: list[Tensor]) -> Tensor:
    return mean(differences)


def e3m0(x: Tensor) -> Tensor:
    """Powers of two in blocks of four whose largest is 16 scales; a scale is rounded up to bf16."""
    scale = (x.view(-1, 4).abs().amax(1, keepdim=True) / 16).float().view(torch.int32)
    scale = (scale + 0xFFFF).bitwise_and(-0x10000).view(torch.float32)
    levels = torch.tensor([0, 0.25, 0.5, 1, 2, 4, 8, 16], dtype=torch.float64)
    shares = x.view(-1, 4) / scale
    nearest = (shares.abs()[..., None] - levels).abs().argmin(-1)
    return (shares.sign() * levels[nearest] * scale).view(x.shape)


def streaming(every: int, tau: int, alpha: float, eta: float, mu: float) -> Iterator[State]:
    """arXiv 2501.18512, algorithm 2, of two fragments; in the last step all meet."""
    replicas, fragments = Replicas(), (("0.w", "0.b"), ("1.v",))
    v, sent = {n: torch.zeros(s, dtype=torch.float64) for n, s in SHAPES.items()}, {}
    for step in replicas.steps():
        last = step + 1 == STEPS
        for number, names in enumerate(fragments):
            when = (number + 1) * every // 2
            for n in names:
                if last or (step + 1 + tau - when) % every == 0:
                    sent[n] = mean([e3m0(delta) for delta in replicas.differences(n)])
                if last or (step + 1 - when) % every == 0:
                    v[n] = mu * v[n] + sent[n]
                    replicas.world[n] = replicas.world[n] - eta * (sent[n] + mu * v[n])
                    kept = 0.0 if last else alpha
                    for theta in replicas.own:
                        theta[n] = kept * theta[n] + (1 - kept) * replicas.world[n]
        yield replicas.state()


class Decaying:
    """MuLoCo's: e ← β e + η Δ, of which the largest `share` is sent."""

    def __init__(self, beta: float, eta: float, share: float) -> None:
        self._beta, self._eta, self._share = beta, eta, share
        self._errors: dict[str, list[Any]] = {n: [0.0] * RANKS for n in SHAPES}

    def average(self, n: str, differences: list[Tensor]) -> Tensor:
        whole = [self._beta * e + self._eta * d for e, d in zip(self._errors[n], differences, strict=True)]
        sent = []
        for x in whole:
            edge = x.abs().flatten().sort(descending=True).values[ceil(self._share * x.numel()) - 1]
            sent.append(torch.where(x.abs() >= edge, x, 0.0))
        self._errors[n] = [x - s for x, s in zip(whole, sent, strict=True)]
        return mean(sent)


def statistical(x: Tensor) -> Tensor:
    """Four bins of 6σ/4 around the mean, each decoded to the mean of what is in it."""
    bins = ((x - x.mean()) / (1.5 * x.std(correction=0))).floor().clamp(-2, 1)
    means = {b: x[bins == b].mean().float().double() for b in bins.unique().tolist()}
    return torch.stack([means[b] for b in bins.tolist()])


def sparseloco(every: int, beta: float, eta: float, chunk: int, k: int, blocks: dict[str, Any]) -> Iterator[State]:
    """arXiv 2508.15706, algorithm 1, with a mean over senders; each rank's part clipped to the median norm."""
    replicas = Replicas()
    errors = {n: [torch.zeros(s, dtype=torch.float64)] * RANKS for n, s in SHAPES.items()}
    for step in replicas.steps():
        for n, (a, b) in blocks.items() if (step + 1) % every == 0 or step + 1 == STEPS else ():
            errors[n] = [beta * e + d for e, d in zip(errors[n], replicas.differences(n), strict=True)]
            kept, sent = max(1, round(a * b * k / chunk**2)), []
            for rank, e in enumerate(errors[n]):
                rows, columns = (1, e.numel()) if e.dim() == 1 else e.shape
                mask = torch.zeros(rows, columns, dtype=torch.bool)
                for i, j in ((i, j) for i in range(0, rows, a) for j in range(0, columns, b)):
                    part = e.view(rows, columns)[i : i + a, j : j + b]
                    edge = part.abs().flatten().sort(descending=True).values[kept - 1]
                    mask[i : i + a, j : j + b] = part.abs() >= edge
                mask = mask.view(e.shape)
                sent.append(torch.zeros_like(e).masked_scatter(mask, statistical(e[mask])))
                errors[n][rank] = e - sent[-1]
            senders = torch.stack([s != 0 for s in sent]).sum(0).clamp(min=1)
            median = sorted(s.norm() for s in sent)[1]
            total = sum(s * min(1.0, float(median / s.norm())) for s in sent)
            replicas.world[n] = replicas.world[n] - eta * total / senders
            for theta in replicas.own:
                theta[n] = replicas.world[n]
        yield replicas.state()


HERE = {"every": 6}
CASES: dict[str, tuple[Any, Callable[[], Iterator[State]]]] = {
    "diloco": (lambda: trained("diloco", synchronisation=HERE), lambda: diloco(6, 0.7, 0.9, plain, RANKS)),
    "localsgd": (lambda: trained("localsgd", synchronisation=HERE), lambda: diloco(6, 1, 0, plain, RANKS)),
    "one replica": (lambda: trained("diloco", 1, synchronisation=HERE), lambda: diloco(6, 0.7, 0.9, plain, 1)),
    "streaming_diloco": (
        lambda: trained(
            "streaming_diloco", synchronisation=HERE | {"fragments": 2, "delay": 1}, aggregator={"block": 4}
        ),
        lambda: streaming(6, 1, 0.5, 0.7, 0.9),
    ),
    "streaming_diloco, two steps late": (
        lambda: trained(
            "streaming_diloco", synchronisation={"every": 8, "fragments": 2, "delay": 2}, aggregator={"block": 4}
        ),
        lambda: streaming(8, 2, 0.5, 0.7, 0.9),
    ),
    "muloco_topk": (
        lambda: trained("muloco_topk", synchronisation=HERE),
        lambda: diloco(6, 0.9, 0.8, Decaying(0.9, 0.9, 0.1).average, RANKS),
    ),
    "sparseloco": (
        lambda: trained("sparseloco", synchronisation=HERE, aggregator={"chunk": 4, "k": 3}),
        lambda: sparseloco(6, 0.95, 0.4, 4, 3, {"0.w": (4, 2), "0.b": (1, 4), "1.v": (4, 4)}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_its_paper_says(name: str) -> None:
    ours, reference = CASES[name]
    for step, ((shown, apart), (world, theirs)) in enumerate(zip(ours(), reference(), strict=True)):
        for one, other in zip([shown, *apart], [world, *theirs], strict=True):
            assert_same(one, other, step)
