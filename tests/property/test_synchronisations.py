"""Laws that every registered synchronisation keeps, with several aggregators, on a small model of its own.

A new synchronisation is tested by being in `SYNCHRONISATIONS`. Ranks are threads; the model is linear, its optimizer
AdamW, so that parameters and optimizer state both matter to what is resumed.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from edgc.aggregators import AGGREGATORS
from edgc.aggregators.aggregator import NamedTensor
from edgc.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.comm.telemetry import Charge
from edgc.config import Method, available, load
from edgc.config.settings import merge
from edgc.exchange.gradient_exchange import GradientExchange, compressible
from edgc.policies import POLICIES
from edgc.policies.amounts import DENSE
from edgc.policies.policy import Context, Decision
from edgc.synchronisation import SYNCHRONISATIONS
from edgc.synchronisation.outer_settings import OuterSettings
from edgc.synchronisation.synchronisation import (
    AdamState,
    Moment,
    Synchronisation,
    SynchronisationSettings,
    Update,
)

CONFIGS = Path(__file__).parents[2] / "configs"
SHAPES = {"0.w": (12, 10), "0.b": (12,), "1.v": (8, 12)}
BUCKETS = (("0.w", "0.b"), ("1.v",))
STEPS, PERIOD = 11, 3  # the last period is cut short
#: Two fragments, whose exchanges are under way for a step.
STREAMING = load(Method, "streaming_diloco", CONFIGS).synchronisation
SHORT = STREAMING.model_copy(update={"every": 2 * PERIOD, "fragments": 2, "delay": 1})  # type: ignore[attr-defined]
METHODS = {"dense": {}, "powersgd": {"rank": 2}, "topk": {"ratio": 0.2}}
#: Changes to a method for synchronisations that refuse it as it is; the first that none refuses.
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"aggregator": {"error_feedback": False}},
    {"policy": {"start_step": 4}},
)


def cases() -> dict[str, SynchronisationSettings]:
    """Every synchronisation's settings in configs/methods, with a period that fits in; and its defaults.

    Two ranks would gossip the whole way to their mean, and not differ at all.
    """
    found = [load(Method, name, CONFIGS).synchronisation for name in available(Method, CONFIGS)]
    found += [kind.Settings(name=name) for name, kind in SYNCHRONISATIONS.items()]
    steady = ("every", "lowest", "highest")  # what times its exchanges is tested by itself, and here has one period
    fits = dict.fromkeys(steady, PERIOD) | {"consensus": 0.5}
    short = [
        s.model_copy(update={n: v for n, v in fits.items() if n in type(s).model_fields}) if s != STREAMING else SHORT
        for s in found
    ]
    return {settings.model_dump_json(exclude_defaults=True): settings for settings in short}


CASES = cases()
every_case = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
every_method = pytest.mark.parametrize("method", METHODS)


#: What is taken instead of a method that is refused whatever is changed: a linear code.
LINEAR: tuple[str, dict[str, Any]] = ("acpsgd", {"rank": 2})


def fitting(settings: SynchronisationSettings, name: str) -> Method:
    """The method, changed if the synchronisation would refuse it."""
    for chosen, policy in ((name, METHODS[name]), LINEAR):
        plain = merge(load(Method, chosen, CONFIGS).model_dump(), {"policy": policy})
        for changes in CHANGES:
            if set(changes.get("aggregator", {})) <= set(plain["aggregator"]):
                method = Method.model_validate(merge(plain, changes))
                laws = AGGREGATORS[method.aggregator.name](method.aggregator).laws
                if settings.refuses(method.aggregator, laws, method.policy) is None:
                    return method
    raise AssertionError(f"{settings} refuses {name}, whatever is changed")


def start() -> dict[str, Tensor]:
    """The parameters that every replica begins with."""
    generator = torch.Generator().manual_seed(0)
    return {n: torch.randn(s, generator=generator) / 4 for n, s in SHAPES.items()}


def gradients(at: dict[str, Tensor], step: int, rank: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients of y = V (W x + b) on a rank's data of this step."""
    data = torch.Generator().manual_seed(100 * step + rank)
    x, y = (torch.randn(16, n, generator=data).to(at["0.w"]) for n in (10, 8))
    p = {n: value.clone().requires_grad_() for n, value in at.items()}
    loss = ((x @ p["0.w"].T + p["0.b"]) @ p["1.v"].T - y).square().mean()
    return loss.detach(), dict(zip(p, torch.autograd.grad(loss, [*p.values()]), strict=True))


class ToyReplica:
    """y = V (W x + b), trained on random data of this rank's own; a `Replica` and its engine in one."""

    def __init__(
        self,
        comm: LoopbackCommunicator,
        settings: SynchronisationSettings,
        method: str | Method,
        dtype: torch.dtype = torch.float32,
        iterations: int = STEPS,
    ) -> None:
        self.parameters = {name: value.to(dtype) for name, value in start().items()}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=0.01, weight_decay=0.1)
        self.lr = 0.01
        self.gradients = {n: torch.zeros(s, dtype=dtype) for n, s in SHAPES.items()}
        self.buckets = [[NamedTensor(n, self.gradients[n]) for n in names] for names in BUCKETS]
        self.comm, self.tied, self.rounded = comm, 0, 0
        chosen = fitting(settings, method) if isinstance(method, str) else method
        kind = AGGREGATORS[chosen.aggregator.name]
        self.shapes = compressible(SHAPES, kind.amount)
        exchanges = settings.exchanges(iterations)
        self.exchange = GradientExchange(
            kind(chosen.aggregator, seed=1),
            POLICIES[chosen.policy.name](chosen.policy, Context(0, 1, exchanges, self.shapes)),
            comm,
            comm,
            self.shapes,
        )
        self.synchronisation: Synchronisation = SYNCHRONISATIONS[settings.name](settings, self.exchange, iterations)  # type: ignore[attr-defined]

    def weight_decay(self, name: str) -> float:
        return 0.1

    def adam(self, name: str) -> AdamState | None:
        state = self.optimizer.state.get(self.parameters[name])
        if not state:
            return None
        return AdamState(state["exp_avg"], state["exp_avg_sq"], 0.9, 0.999, 1e-8)

    def stages_of(self, name: str) -> int:
        return 1

    def changed(self) -> None:
        self.rounded += 1

    def tie(self) -> None:
        self.tied += 1

    def step(self, step: int, poison: bool = False) -> float:
        """One step as `MegatronEngine.train_step` takes it. Returns the agreed norm."""
        synchronisation = self.synchronisation
        synchronisation.begin_step(step, self)
        synchronisation.forward_done()
        loss, found = gradients(self.parameters, step, self.comm.rank)
        works = []
        for bucket in self.buckets:
            for gradient in bucket:
                gradient.tensor.copy_(found[gradient.name] * (math.nan if poison else 1))
            works.append(synchronisation.bucket(bucket))
        for work in works:
            work.wait()
        update = synchronisation.before_optimizer(step, self)
        norm = float(torch.stack([g.square().sum() for g in self.gradients.values()]).sum().sqrt())
        if math.isfinite(norm) and update is Update.OPTIMIZER:
            for name, parameter in self.parameters.items():
                parameter.grad = None if name in synchronisation.own else self.gradients[name]
            self.optimizer.step()
            synchronisation.update(step, self)
        agreed = synchronisation.agreed_norm(step, norm)
        if math.isfinite(agreed):
            synchronisation.after_optimizer(step, self)
        synchronisation.end_step(step, loss)
        return agreed

    def state_dict(self) -> dict[str, Any]:
        own = self.synchronisation.state_dict()
        ours = {"parameters": self.parameters, "optimizer": self.optimizer.state_dict()}
        ours["exchange"] = self.exchange.state_dict()
        return ours | {"synchronisation": own, "ledger": self.comm.ledger.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state["parameters"].items():
            self.parameters[name].copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        self.exchange.load_state_dict(state["exchange"])
        self.synchronisation.load_state_dict(state["synchronisation"])
        self.comm.ledger.load_state_dict(state["ledger"])


def parameters(replica: ToyReplica) -> dict[str, Tensor]:
    """As evaluation and export see them."""
    with replica.synchronisation.synchronised(replica):
        return {name: value.clone() for name, value in replica.parameters.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in SHAPES)


@every_case
@every_method
def test_synchronised_parameters_are_equal_on_all_ranks_and_the_run_ends_with_them(
    settings: SynchronisationSettings, method: str
) -> None:
    def body(comm: LoopbackCommunicator) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
        replica, shown, own = ToyReplica(comm, settings, method), [], []
        for step in range(STEPS):
            replica.step(step)
            own.append({name: value.clone() for name, value in replica.parameters.items()})
            shown.append(parameters(replica))
            assert same(own[-1], replica.parameters), "showing them changes nothing"
        return shown, own

    (shown, own), (others, theirs) = run_ranks(2, body)
    for step in range(STEPS):
        assert same(shown[step], others[step])
        if settings.equal_after(step, STEPS):
            assert same(own[step], theirs[step])
            assert same(own[step], shown[step])
        else:
            assert not same(own[step], theirs[step]), "local steps are a rank's own"
    assert not same(shown[0], shown[-1]), "nothing was learnt"


@every_case
@every_method
def test_saved_and_restored_is_uninterrupted_wherever_it_was_cut(
    settings: SynchronisationSettings, method: str
) -> None:
    """Parameters, gradient norms and bytes, bit for bit; saving changes nothing either."""

    def body(comm: LoopbackCommunicator) -> None:
        whole, expected = ToyReplica(comm, settings, method), []
        for step in range(STEPS):
            norm = whole.step(step)
            expected.append((norm, comm.ledger.take(), parameters(whole)))
        first = ToyReplica(comm, settings, method)
        for step in range(STEPS):
            norm = first.step(step)
            charges, shown = comm.ledger.take(), parameters(first)
            assert norm == expected[step][0]
            assert _bytes(charges) == _bytes(expected[step][1])
            assert same(shown, expected[step][2])
            file = io.BytesIO()
            torch.save(first.state_dict(), file)
            file.seek(0)
            comm.ledger.take()
            first = ToyReplica(comm, settings, method)
            first.load_state_dict(torch.load(file, weights_only=True))

    run_ranks(2, body)


def _bytes(charges: dict[str, Charge]) -> dict[str, tuple[int, float]]:
    return {tag: (charge.payload_bytes, charge.wire_bytes) for tag, charge in charges.items()}


@every_case
@every_method
def test_settings_foretell_bytes_and_memory(settings: SynchronisationSettings, method: str) -> None:
    """Payload of the gradient tag over the run, the calls' steps, and the most bytes of the tensors in its state."""

    def body(comm: LoopbackCommunicator) -> None:
        replica, payload = ToyReplica(comm, settings, method), []
        for step in range(STEPS):
            replica.step(step)
            charge = comm.ledger.take().get("gradient")
            payload.append(0 if charge is None else charge.payload_bytes)
        replica.synchronisation.drain()
        left = comm.ledger.take().get("gradient")
        aggregator, policy = replica.exchange.aggregator, replica.exchange.policy

        def foretold(step: int) -> int:
            amounts, exchanged = policy.decide(step // settings.period), settings.exchanged(step, STEPS, SHAPES)
            decided = {n: aggregator.effective(s, amounts.amount(n)) for n, s in replica.shapes.items()}
            buckets = [{n: SHAPES[n] for n in names if n in exchanged} for names in BUCKETS]
            decided_so, exchange = Decision(DENSE, decided), step // settings.period
            return sum(aggregator.workload_at(exchange, b, decided_so, 2).payload for b in buckets if b)

        expected = [foretold(step) for step in range(STEPS)]
        assert sum(payload) + (0 if left is None else left.payload_bytes) == sum(expected)
        if settings.moment is not Moment.NEXT_STEP and not getattr(settings, "delay", 0):
            assert payload == expected

        again, kept = ToyReplica(comm, settings, method), []
        for step in range(STEPS):
            again.step(step)
            state = again.synchronisation.state_dict()
            tensors = [t for by_name in state.values() if isinstance(by_name, dict) for t in by_name.values()]
            kept.append(sum(t.numel() * t.element_size() for t in tensors))
        assert settings.state_bytes(SHAPES) == max(kept)

    run_ranks(2, body)


@every_case
def test_all_ranks_learn_of_a_gradient_that_is_not_finite_in_the_same_step(settings: SynchronisationSettings) -> None:
    """At the latest with the next exchange; until then nobody leaves, and nobody waits for ever."""

    def body(comm: LoopbackCommunicator) -> tuple[int, list[bool]]:
        replica = ToyReplica(comm, settings, "dense")
        for step in range(STEPS):
            norm = replica.step(step, poison=step == 4 and comm.rank == 1)
            if not math.isfinite(norm):
                return step, [bool(v.isfinite().all()) for v in replica.parameters.values()]
        return -1, []

    (one, finite), (other, also) = run_ranks(2, body)
    assert one == other
    assert 4 <= one <= 4 + max(settings.period, settings.in_flight)
    assert all(finite + also), "the step is left out"


@every_case
def test_a_group_of_one_sends_nothing(settings: SynchronisationSettings) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        replica = ToyReplica(comm, settings, "powersgd")
        for step in range(STEPS):
            replica.step(step)
        assert not comm.ledger.take()

    run_ranks(1, body)


@every_case
def test_describes_itself(settings: SynchronisationSettings) -> None:
    kind = type(settings)
    assert kind.moment in Moment
    assert all(info.description for name, info in kind.model_fields.items() if name != "name")
    assert kind.moment is Moment.BACKWARD or kind.no_hook, "whoever can be no hook says why"


def outer(**changes: Any) -> OuterSettings:
    return OuterSettings.model_validate({"name": "outer", "every": PERIOD} | changes)


def test_outer_step_is_nesterov_momentum_on_the_mean_difference() -> None:
    """Against the paper's formulas in float64: v ← μ v + Δ, θ ← θ − η (Δ + μ v)."""
    mu, eta = 0.9, 0.7

    def body(comm: LoopbackCommunicator) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
        replica, seen = ToyReplica(comm, outer(lr=eta, momentum=mu), "dense"), []
        seen.append((dict(replica.parameters), parameters(replica)))
        after = replica.synchronisation.after_optimizer

        def watched(step: int, model: Any) -> None:
            own = {name: value.clone() for name, value in replica.parameters.items()}
            after(step, model)
            if replica.synchronisation.settings.exchanges_after(step, STEPS):
                seen.append((own, {name: value.clone() for name, value in replica.parameters.items()}))

        replica.synchronisation.after_optimizer = watched  # type: ignore[method-assign]
        for step in range(STEPS):
            replica.step(step)
        return seen

    ours, theirs = run_ranks(2, body)
    for name in SHAPES:
        theta, v = ours[0][1][name].double(), torch.zeros(SHAPES[name], dtype=torch.float64)
        for (own, result), (other, _) in zip(ours[1:], theirs[1:], strict=True):
            delta = theta - (own[name].double() + other[name].double()) / 2
            v = mu * v + delta
            theta = theta - eta * (delta + mu * v)
            torch.testing.assert_close(result[name].double(), theta, rtol=0, atol=1e-5)
            theta = result[name].double()


def test_local_sgd_averages_parameters() -> None:
    def body(comm: LoopbackCommunicator) -> Sequence[Tensor]:
        replica = ToyReplica(comm, outer(lr=1.0, momentum=0.0), "dense")
        for step in range(PERIOD - 1):
            replica.step(step)
        replica.synchronisation.after_optimizer = lambda *_: None  # type: ignore[method-assign]
        replica.step(PERIOD - 1)
        own = replica.parameters["0.w"].clone()
        del replica.synchronisation.after_optimizer
        replica.synchronisation.after_optimizer(PERIOD - 1, replica)
        return own, replica.parameters["0.w"]

    (one, result), (other, _) = run_ranks(2, body)
    torch.testing.assert_close(result, (one + other) / 2)


def test_fragments_take_turns_and_all_of_them_meet_in_the_last_step() -> None:
    """Each is launched once in H steps, `delay` before its end; no two are under way at once."""
    settings = outer(fragments=3, every=10, delay=2, mixing=0.5)
    steps = {step: [*settings.launched(step, 25)] for step in range(25) if settings.exchanges_after(step, 25)}
    assert steps == {0: [0], 3: [1], 7: [2], 10: [0], 13: [1], 17: [2], 20: [0], 24: [0, 1, 2]}
    names = ("embedding.w", "decoder.layers.2.a.w", "decoder.layers.11.a.w", "output_layer.weight")
    assert [settings.fragment(name) for name in names] == [0, 2, 2, 0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fragments": 4}, "at most as many fragments"),
        ({"every": 10, "fragments": 2, "delay": 5, "mixing": 0.5}, "use at most 4"),
        ({"every": 10, "delay": 5}, "throws away"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        outer(**changes)
    (error,) = caught.value.errors()
    assert said in error["msg"]
    assert "\n" not in error["msg"]


def test_delayed_takes_the_average_of_the_step_before() -> None:
    """The first step leaves everything as it is; step t's update is what a copy of step t − 1's gradients gives."""

    def body(comm: LoopbackCommunicator) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor, Tensor]:
        settings = SYNCHRONISATIONS["delayed"].Settings(name="delayed")
        replica = ToyReplica(comm, settings, "dense")
        start = {name: value.clone() for name, value in replica.parameters.items()}
        sent = []
        exchange = replica.exchange.start
        replica.exchange.start = lambda bucket, **o: (  # type: ignore[method-assign]
            sent.append({t.name: t.tensor.clone() for t in bucket}),
            exchange(bucket, **o),
        )[1]
        replica.step(0)
        after_first = {name: value.clone() for name, value in replica.parameters.items()}
        replica.step(1)
        return start, after_first, sent[0]["0.w"], replica.gradients["0.w"]

    (start, after_first, mine, taken), (_, _, theirs, _) = run_ranks(2, body)
    assert same(start, after_first)
    torch.testing.assert_close(taken, (mine + theirs) / 2)
