"""ramp: ranks and bits with the fewest bytes for an error, or the least error for so many bytes."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.alternating import AlternatingSettings
from edgc.core.aggregators.factor_means import factor_code
from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.gradient_exchange import GradientExchange
from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import CodedRank, Rank
from edgc.core.policies.policy import Context, Observation
from edgc.core.policies.ramp import Ramp, RampSettings, element_bytes, residual, rounding
from edgc.core.settings.method import Method
from edgc.core.settings.reading import load
from edgc.tools.laws.toy_replica import STEPS, ToyReplica, parameters, same
from tests.fixtures.exchanged import exchange_round

SHAPES = {"embedding": (1024, 64), "qkv": (192, 64), "mlp": (64, 256)}
EXPONENTS = st.fixed_dictionaries({name: st.floats(0.1, 3) for name in SHAPES})


def policy(**options: Any) -> Ramp:
    chosen = RampSettings.model_validate({"name": "ramp", "window": 10} | options)
    return Ramp(chosen, Context(0, 1, 1000, SHAPES))


def observe(target: Ramp, exponents: dict[str, float], windows: int = 6, first: int = 0) -> dict[str, Any]:
    """What exchanges of singular energies i^-p show, from window `first` on, until amounts stay as they are."""
    for window in range(first, first + windows):
        spectra, errors = {}, {}
        for name, chosen in target.decide(999).by_parameter.items():
            energies = np.arange(1, 65.0) ** -exponents[name]
            energies /= energies.sum()
            kept = (1 - rounding(chosen.short)) * (1 - rounding(chosen.long))  # type: ignore[union-attr]
            sent = energies[: int(chosen)]  # type: ignore[arg-type]
            spectra[name], errors[name] = np.sqrt(sent), np.sqrt(1 - kept * sent.sum())
        target.observe(Observation(10 * window + 9, relative_error=errors, spectrum=spectra))
    return dict(target.decide(999).by_parameter)


def spent(amounts: dict[str, Any]) -> float:
    """Bytes as a share of fp32's."""
    whole = sum(m * n for m, n in SHAPES.values())
    return sum(
        int(a) * (min(SHAPES[n]) * element_bytes(a.short) + max(SHAPES[n]) * element_bytes(a.long))
        for n, a in amounts.items()
    ) / (4 * whole)


def lost(amounts: dict[str, Any], exponents: dict[str, float]) -> float:
    """Mean by elements of the residuals' bounds φ."""
    total = 0.0
    for name, a in amounts.items():
        energies = np.arange(1, 65.0) ** -exponents[name]
        kept = energies[: int(a)].sum() / energies.sum() * (1 - rounding(a.short)) * (1 - rounding(a.long))
        total += float(residual(1 - kept)) * prod(SHAPES[name])
    return total / sum(m * n for m, n in SHAPES.values())


@settings(max_examples=20)
@given(EXPONENTS, st.floats(0.01, 0.3))
def test_a_budget_is_kept_and_no_uniform_choice_within_it_loses_less(exponents: dict[str, float], share: float) -> None:
    found = observe(policy(share=share), exponents, windows=12)
    assert spent(found) <= max(share, spent({name: CodedRank(1, 4, 4) for name in SHAPES}))
    uniform = [
        {name: CodedRank(rank, *bits) for name in SHAPES} for rank in range(1, 48) for bits in product((4, 8), repeat=2)
    ]
    within = [lost(each, exponents) for each in uniform if spent(each) <= 0.9 * share]  # .9: a last step's granularity
    assert lost(found, exponents) <= min(within, default=np.inf) * 1.01 + 1e-3


def test_a_share_that_ranks_cannot_spend_is_told_with_what_they_can() -> None:
    assert policy(share=0.05).note == ""
    assert "with max_rank 4 it spends" in policy(share=0.05, max_rank=4).note
    assert "with min_rank 8 it spends" in policy(share=0.01, min_rank=8).note


def test_shorter_blocks_are_paid_for() -> None:
    chosen = RampSettings.model_validate({"name": "ramp", "window": 10, "share": 0.05})
    short, long = (
        dict(Ramp(chosen, Context(0, 1, 1000, SHAPES, block=block)).decide(0).by_parameter) for block in (16, 128)
    )
    assert all(int(short[name]) < int(long[name]) for name in SHAPES)  # type: ignore[arg-type]


@settings(max_examples=20)
@given(EXPONENTS, st.floats(0.4, 0.9))
def test_an_error_is_held_with_few_bytes(exponents: dict[str, float], target: float) -> None:
    found = observe(policy(target_error=target), exponents, windows=12)
    if all(rank < 47 for rank in found.values()):
        assert lost(found, exponents) <= residual(target**2) * 1.01 + 1e-3
    fewer = observe(policy(share=max(0.7 * spent(found), 1e-3)), exponents, windows=12)
    if any(rank > 1 for rank in found.values()):
        assert lost(fewer, exponents) >= lost(found, exponents) - 1e-9, "less was enough"


def test_the_embedding_gets_what_its_spectrum_asks_for() -> None:
    steep = observe(policy(share=0.05), {"embedding": 2.0, "qkv": 0.5, "mlp": 0.5})
    flat = observe(policy(share=0.05), {"embedding": 0.5, "qkv": 2.0, "mlp": 2.0})
    assert int(steep["embedding"]) < int(steep["qkv"])
    assert int(flat["embedding"]) > int(flat["qkv"])


def test_what_is_known_exactly_is_told_more_precisely() -> None:
    """Two singular values are nearly all there is: bits are bought, for rank buys little."""
    seen = Observation(9, spectrum=dict.fromkeys(SHAPES, (1.0, 1.0)), relative_error=dict.fromkeys(SHAPES, 0.01))
    target = policy(share=0.3, smoothing=0.0)
    for _ in range(6):
        target.observe(seen)
    amounts: list[Any] = [*target.decide(0).by_parameter.values()]
    assert all(amount.short == amount.long == 8 for amount in amounts)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounding_is_that_of_the_code(bits: int) -> None:
    values = torch.randn(1, 512 * 128, generator=torch.Generator().manual_seed(1))
    code = factor_code(bits, 128)
    error = values - code.decode(code.encode(values), values.numel(), torch.float32)
    assert float(error.square().sum() / values.square().sum()) == pytest.approx(rounding(bits), rel=0.1)


def test_an_amount_is_copied_with_its_bits_and_only_equal_to_one_with_the_same() -> None:
    amount = CodedRank(6, 4, 8)
    assert copy.deepcopy(amount) == pickle.loads(pickle.dumps(amount)) == amount
    assert amount not in (CodedRank(6, 8, 4), Rank(6), 6)
    assert amount.limited(3) == CodedRank(3, 4, 8)
    assert amount.bits_of(10, 90) == (4, 8) == amount.bits_of(10, 10)
    assert amount.bits_of(90, 10) == (8, 4)
    assert "only aggregator lowrank" in str(AlternatingSettings.model_validate({"name": "alternating"}).refuses(amount))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": {"share": None}}, "give target_error, share, or both"),
        ({"policy": {"min_rank": 9, "max_rank": 8}}, "min_rank 9 must not exceed max_rank 8"),
        ({"aggregator": {"right_wire": None}}, "set left_wire and right_wire"),
        ({"aggregator": {"left_wire": None, "right_wire": None, "rotation": False}}, "dense_wire int8"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, dict[str, Any]], why: str) -> None:
    values = load(Method, "ramp").model_dump()
    for part, new in changes.items():
        values[part] |= new
    with pytest.raises(UserError, match=why):
        validate(Method, values, "ramp")


def test_a_run_that_ends_before_anything_is_decided_is_refused() -> None:
    with pytest.raises(UserError, match="end before anything is decided"):
        policy(share=0.1, window=1000)
    with pytest.raises(UserError, match="end before anything is decided"):
        policy(share=0.1, window=500, start_step=500)
    policy(share=0.1, window=800, start_step=750)  # its first window has fifty compressed exchanges


@pytest.mark.parametrize("name", ["ramp", "ramp_local"])
def test_a_cut_run_goes_on_bit_for_bit_while_amounts_change(name: str) -> None:
    """Through steps that travel dense in eight bits, and those after which amounts are chosen anew."""
    values = load(Method, name).model_dump()
    values["policy"] |= {"share": 0.2, "window": 1, "start_step": 1, "smoothing": 0.0, "bits": [2, 4, 8]}
    values["synchronisation"] |= {"every": 2} if name == "ramp_local" else {}
    method = Method.model_validate(values)

    def body(comm: LoopbackCommunicator) -> list[Any]:
        whole, cut = (ToyReplica(comm, method.synchronisation, method) for _ in range(2))
        seen = []
        for step in range(STEPS):
            whole.step(step)
            cut.step(step)
            saved, cut = cut.state_dict(), ToyReplica(comm, method.synchronisation, method)
            cut.load_state_dict(copy.deepcopy(saved))
            assert same(parameters(whole), parameters(cut))
            seen.append((whole.exchange.policy.decide(99), parameters(whole)))
        return seen

    ranks = run_ranks(2, body)
    for (one, theta), (other, theirs) in zip(*ranks, strict=True):
        assert one == other
        assert same(theta, theirs)
    assert len({tuple(decision.by_parameter.values()) for decision, _ in ranks[0]}) > 1


def behind(policy: dict[str, Any]) -> tuple[float, float, float]:
    """Bytes as a share of fp32's and both residuals' mean square norms, over the later 60 of 80 exchanges of noise.

    Of an embedding a few of whose rows are large and whose spectrum is flat, and of a matrix of low rank.
    """
    method = Method.model_validate(load(Method, "ramp").model_dump() | {"policy": policy})
    shapes, steps, counted = {"embedding": (256, 32), "mlp": (128, 32)}, 80, 60
    drawn = torch.Generator().manual_seed(0)
    embedding = torch.randn(256, 32, generator=drawn) * torch.logspace(1, -1, 256)[:, None]
    mlp = torch.randn(128, 2, generator=drawn) @ torch.randn(2, 32, generator=drawn)
    signals = {"embedding": embedding / embedding.norm(), "mlp": mlp / mlp.norm()}

    def body(comm: LoopbackCommunicator) -> tuple[float, float, float]:
        aggregator = AGGREGATORS["lowrank"](method.aggregator, seed=1)
        decides = POLICIES[method.policy.name](method.policy, Context(0, 1, steps, shapes))
        exchange = GradientExchange(aggregator, decides, comm, comm, shapes)
        norms = torch.zeros(2)
        for step in range(steps):
            exchange.begin_round(step)
            own = torch.Generator().manual_seed(2 * step + comm.rank)
            noisy = {n: s + 0.5 * torch.randn(s.shape, generator=own) / s.numel() ** 0.5 for n, s in signals.items()}
            exchange.start([NamedTensor(n, noisy[n]) for n in shapes]).wait()
            exchange.end_round(torch.tensor(0.0))
            if step >= steps - counted:
                norms += torch.stack([aggregator.residual(n).square().sum() for n in shapes])  # type: ignore[union-attr]
        sent = comm.ledger.take()["gradient"].payload_bytes / steps / (4 * 32 * (256 + 128))
        embedding, mlp = (norms / counted).tolist()
        return sent, embedding, mlp

    return run_ranks(2, body)[0]


@pytest.mark.tier("test")
def test_an_embedding_is_less_behind_than_at_one_rank_for_all_with_as_many_bytes() -> None:
    sent, embedding, mlp = behind({"name": "ramp", "share": 0.036, "window": 5})
    sent_at_one, embedding_at_one, mlp_at_one = behind({"name": "fixed", "rank": 8})
    assert sent <= sent_at_one
    # Of six draws of the signals, with and without AVX-512 products: .76 to .87, and .86 to .94 of both together.
    assert embedding < 0.9 * embedding_at_one
    assert 2 * embedding + mlp < 0.95 * (2 * embedding_at_one + mlp_at_one)  # it has twice the elements


def test_what_does_not_change_is_not_spent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast has thousands of windows. One that was saved and goes on decides as if it had not been."""
    calls: list[str] = []
    spend = Ramp._spend
    monkeypatch.setattr(Ramp, "_spend", lambda self: calls.append("") or spend(self))
    target = policy(share=0.05)
    exponents = {"embedding": 0.5, "qkv": 1.0, "mlp": 2.0}
    settled = observe(target, exponents, windows=200)
    assert 2 < len(calls) < 100
    resumed = policy(share=0.05)
    resumed.load_state_dict(copy.deepcopy(target.state_dict()))
    changed = {"embedding": 2.0, "qkv": 0.5, "mlp": 0.5}
    assert observe(resumed, exponents, windows=3) == settled != observe(resumed, changed) == observe(target, changed)


@pytest.mark.parametrize("empty", [(0, 5), (5, 0), (0, 0)], ids=str)
def test_a_matrix_without_elements_goes_through_windows(empty: tuple[int, int]) -> None:
    method = load(Method, "ramp")
    shapes = {"empty": empty, "mlp": (32, 24), "one": (1, 1)}
    chosen = method.policy.model_copy(update={"window": 2})

    def body(comm: LoopbackCommunicator) -> Any:
        aggregator = AGGREGATORS["lowrank"](method.aggregator, seed=1)
        exchange = GradientExchange(aggregator, Ramp(chosen, Context(0, 1, 6, shapes)), comm, comm, shapes)
        values = {name: torch.ones(shape) * (comm.rank + 1) for name, shape in shapes.items()}
        for step in range(6):
            found = [NamedTensor(name, value.clone()) for name, value in values.items()]
            exchange_round(exchange, step, found)
        return {each.name: tuple(each.tensor.shape) for each in found}

    assert run_ranks(2, body) == [shapes] * 2
