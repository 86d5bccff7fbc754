"""Dion, Orth-Dion, DeMo, 1-bit Adam and CD-Adam against straight-line implementations of their papers, in float64.

Four ranks, 25 steps of the small model of `toy_replica`; nothing but the model and the data is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from scipy.fft import dctn, idctn
from torch import Tensor

from edgc.core.aggregators.draws import draw
from edgc.core.base.settings import merge
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.suite.config import Method, load
from edgc.tools.laws.toy_replica import CONFIGS, SHAPES, ToyReplica, gradients, start

RANKS, STEPS, LR, DECAY = 4, 25, 0.01, 0.1
Parameters = dict[str, Tensor]
HIDDEN = ("0.w", "1.v")


def method(name: str, **changes: Any) -> Method:
    return Method.model_validate(merge(load(Method, name, CONFIGS).model_dump(), changes))


def own(replica: ToyReplica) -> Parameters:
    return {name: value.clone() for name, value in replica.parameters.items()}


def run(
    of: Method, ranks: int = RANKS, iterations: int = STEPS, shown: Callable[[ToyReplica], Any] = own
) -> list[list[Any]]:
    """By rank, what is `shown` after each step."""

    def body(comm: LoopbackCommunicator) -> list[Any]:
        replica, seen = ToyReplica(comm, of.synchronisation, of, torch.float64, iterations), []  # type: ignore[arg-type]
        for step in range(iterations):
            replica.step(step)
            seen.append(shown(replica))
        assert bool(comm.ledger.take()) == (ranks > 1)
        return seen

    return run_ranks(ranks, body)


def trained(of: Method) -> list[Parameters]:
    """Parameters after each step; equal on all ranks."""
    first, *others = run(of)
    for other in others:
        assert all(torch.equal(a[n], b[n]) for a, b in zip(first, other, strict=True) for n in SHAPES)
    return first


def assert_same(ours: Parameters, theirs: Parameters, at: object) -> None:
    for n in SHAPES:
        torch.testing.assert_close(ours[n], theirs[n], rtol=0, atol=1e-7, msg=lambda m, n=n: f"{at} {n}: {m}")


def steps(theta: Parameters) -> Iterator[tuple[int, list[Parameters]]]:
    """Each step's number, and all ranks' gradients where `theta` then is."""
    for step in range(STEPS):
        yield step, [gradients(theta, step, rank)[1] for rank in range(RANKS)]


class AdamW:
    """Of one tensor."""

    def __init__(self) -> None:
        self.m: Any = 0.0
        self.v: Any = 0.0
        self.t = 0

    def step(self, x: Tensor, g: Tensor) -> Tensor:
        self.t += 1
        self.m, self.v = 0.9 * self.m + 0.1 * g, 0.999 * self.v + 0.001 * g**2
        m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        return (1 - LR * DECAY) * x - LR * m / (v.sqrt() + 1e-8)


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean(0)


def dion(normalise: str, mu: float, rank: int) -> Iterator[Parameters]:
    """arXiv 2504.05295, with data parallelism; `qr`: arXiv 2605.16341."""
    theta = {n: value.double() for n, value in start().items()}
    adamw = AdamW()
    momenta = {n: [torch.zeros(SHAPES[n], dtype=torch.float64) for _ in range(RANKS)] for n in HIDDEN}
    q = {n: draw(1, 0, n, SHAPES[n][1], rank, theta[n]) for n in HIDDEN}
    for _, grads in steps(theta):
        for n in HIDDEN:
            held = [m + g[n] for m, g in zip(momenta[n], grads, strict=True)]
            p, _ = torch.linalg.qr(mean([m @ q[n] for m in held]))
            r = mean([m.T @ p for m in held])
            momenta[n] = [m - (1 - mu) * p @ r.T for m in held]
            if normalise == "columns":
                q[n] = r / r.norm(dim=0)
            else:
                basis, triangle = torch.linalg.qr(r)
                q[n] = basis @ torch.diag(triangle.diagonal().sign())
            m, k = SHAPES[n]
            theta[n] = (1 - LR * DECAY) * theta[n] - LR * (m / k) ** 0.5 * p @ q[n].T
        theta["0.b"] = adamw.step(theta["0.b"], mean([g["0.b"] for g in grads]))
        yield dict(theta)


def demo(beta: float, k: int, blocks: dict[str, tuple[int, int]]) -> Iterator[Parameters]:
    """arXiv 2411.19870, algorithm 1. `blocks`: the chunks of each matrix; the vector is too short to be coded."""
    theta = {n: value.double() for n, value in start().items()}
    momenta = {n: [torch.zeros(SHAPES[n], dtype=torch.float64) for _ in range(RANKS)] for n in blocks}
    for _, grads in steps(theta):
        for n, (a, b) in blocks.items():
            rows, columns = SHAPES[n]
            update = torch.zeros(rows, columns, dtype=torch.float64)
            momenta[n] = [beta * m + LR * g[n] for m, g in zip(momenta[n], grads, strict=True)]
            for i, j in ((i, j) for i in range(0, rows, a) for j in range(0, columns, b)):
                total, senders = torch.zeros(a * b, dtype=torch.float64), torch.zeros(a * b)
                for m in momenta[n]:
                    chunk = m[i : i + a, j : j + b]
                    coefficients = torch.from_numpy(dctn(chunk.numpy(), norm="ortho")).reshape(-1)
                    where = coefficients.abs().argsort(descending=True)[:k]
                    sent = torch.zeros_like(coefficients)
                    sent[where] = coefficients[where]
                    chunk -= torch.from_numpy(idctn(sent.reshape(a, b).numpy(), norm="ortho"))
                    total, senders[where] = total + sent, senders[where] + 1
                averages = (total / senders.clamp(min=1)).reshape(a, b)
                update[i : i + a, j : j + b] = torch.from_numpy(idctn(averages.numpy(), norm="ortho"))
            theta[n] = (1 - LR * DECAY) * theta[n] - LR * update.sign()
        theta["0.b"] = (1 - LR * DECAY) * theta["0.b"] - LR * mean([g["0.b"] for g in grads]).sign()
        yield dict(theta)


BLOCK = 4
#: Whose part of its bucket each element is: 132 elements of the first in parts of 36, 96 of the second in parts of 24.
OWNERS = {"0.w": torch.arange(120) // 36, "0.b": torch.arange(120, 132) // 36, "1.v": torch.arange(96) // 24}


def one_bit(x: Tensor) -> Tensor:
    """Sign, and mean magnitude of each block, rounded up to bf16."""
    scale = x.view(-1, BLOCK).abs().mean(1, keepdim=True).float().view(torch.int32)
    scale = (scale + 0xFFFF).bitwise_and(-0x10000).view(torch.float32)
    return (torch.where(x.view(-1, BLOCK) >= 0, 1.0, -1.0).double() * scale).view(x.shape)


def told(n: str, own: list[Tensor]) -> list[Tensor]:
    """What owners know of each rank's tensor: its code, and their own part of their own."""
    return [torch.where((OWNERS[n] == rank).view(x.shape), x, one_bit(x)) for rank, x in enumerate(own)]


class BothWays:
    """The mean of a tensor in one bit, with error feedback of ranks and of owners."""

    def __init__(self, n: str) -> None:
        self.n = n
        self.errors: list[Any] = [0.0] * RANKS
        self.server: Any = 0.0

    def average(self, own: list[Tensor]) -> Tensor:
        compensated = [x + e for x, e in zip(own, self.errors, strict=True)]
        sent = told(self.n, compensated)
        self.errors = [x - s for x, s in zip(compensated, sent, strict=True)]
        total = mean(sent) + self.server
        self.server = total - one_bit(total)
        return one_bit(total)


def onebit_adam(warmup: int) -> Iterator[Parameters]:
    """arXiv 2102.02888, algorithm 1, with AdamW's weight decay and corrections."""
    theta = {n: value.double() for n, value in start().items()}
    adamw, links = {n: AdamW() for n in SHAPES}, {n: BothWays(n) for n in SHAPES}
    for step, grads in steps(theta):
        for n, state in adamw.items():
            if step < warmup:
                theta[n] = state.step(theta[n], mean([g[n] for g in grads]))
                continue
            state.m = links[n].average([0.9 * state.m + 0.1 * g[n] for g in grads])
            root = (state.v / (1 - 0.999**warmup)).sqrt() + 1e-8
            theta[n] = (1 - LR * DECAY) * theta[n] - LR * state.m / (1 - 0.9 ** (step + 1)) / root
        yield dict(theta)


def cdadam() -> Iterator[Parameters]:
    """arXiv 2111.00705, algorithm 1: workers tell ĝᵢ ← ĝᵢ + C(gᵢ − ĝᵢ), the server g̃ ← g̃ + C(mean ĝᵢ − g̃)."""
    theta = {n: value.double() for n, value in start().items()}
    adamw = {n: AdamW() for n in SHAPES}
    workers = {n: [torch.zeros(SHAPES[n], dtype=torch.float64) for _ in range(RANKS)] for n in SHAPES}
    server = {n: torch.zeros(SHAPES[n], dtype=torch.float64) for n in SHAPES}
    for _, grads in steps(theta):
        for n in SHAPES:
            differences = [g[n] - known for g, known in zip(grads, workers[n], strict=True)]
            workers[n] = [known + c for known, c in zip(workers[n], told(n, differences), strict=True)]
            server[n] = server[n] + one_bit(mean(workers[n]) - server[n])
            theta[n] = adamw[n].step(theta[n], server[n])
        yield dict(theta)


def muon(mu: float) -> Iterator[Parameters]:
    """Jordan et al. 2024, with Dion's √(m/n); the Newton–Schulz polynomial is taken of the singular values."""
    theta = {n: value.double() for n, value in start().items()}
    adamw, momenta = AdamW(), {n: torch.zeros(SHAPES[n], dtype=torch.float64) for n in HIDDEN}
    for _, grads in steps(theta):
        for n in HIDDEN:
            momenta[n] = mu * momenta[n] + mean([g[n] for g in grads])
            u, s, vh = torch.linalg.svd(momenta[n] / momenta[n].norm(), full_matrices=False)
            for _ in range(5):
                s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
            rows, columns = SHAPES[n]
            theta[n] = (1 - LR * DECAY) * theta[n] - LR * (rows / columns) ** 0.5 * u @ torch.diag(s) @ vh
        theta["0.b"] = adamw.step(theta["0.b"], mean([g["0.b"] for g in grads]))
        yield dict(theta)


WHOLE = {"name": "dion", "momentum": 0.9}
RANKED = {"policy": {"rank": 3}, "placement": {"exclude": []}}
CASES = {
    "dion": (method("dion", **RANKED), lambda: dion("columns", 0.95, 3)),
    "orth_dion": (method("orth_dion", **RANKED), lambda: dion("qr", 0.95, 3)),
    "dion over a dense average is muon": (method("dense", synchronisation=WHOLE), lambda: muon(0.9)),
    "demo": (method("demo", aggregator={"chunk": 4, "k": 3}), lambda: demo(0.999, 3, {"0.w": (4, 2), "1.v": (4, 4)})),
    "onebit_adam": (
        method("onebit_adam", policy={"start_step": 5}, aggregator={"block": BLOCK}),
        lambda: onebit_adam(5),
    ),
    "cdadam": (method("cdadam", aggregator={"block": BLOCK}), cdadam),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_its_paper_says(name: str) -> None:
    chosen, reference = CASES[name]
    for step, (ours, theirs) in enumerate(zip(trained(chosen), reference(), strict=True)):
        assert_same(ours, theirs, step)


def test_until_the_variance_is_frozen_it_is_dense_adamw_bit_for_bit() -> None:
    dense, frozen = trained(method("dense")), trained(method("onebit_adam", policy={"start_step": 5}))
    for n in SHAPES:
        assert all(torch.equal(a[n], b[n]) for a, b in zip(dense[:5], frozen[:5], strict=True))
        assert not torch.equal(dense[5][n], frozen[5][n])


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("dion", {"aggregator": {"error_feedback": True}}, "without error feedback"),
        ("onebit_adam", {"policy": {"start_step": 0}}, "start_step"),
        ("cdadam", {"aggregator": {"error_feedback": False}}, "error_feedback: true"),
        ("nocomm", {"synchronisation": {"name": "sign"}}, "control"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_line(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        method(name, **changes)
    (error,) = caught.value.errors()
    assert said in error["msg"]
    assert "\n" not in error["msg"]
