"""Laws that every registered synchronisation keeps, with several aggregators, on a small model of its own.

A new synchronisation is tested by being in `SYNCHRONISATIONS`.
"""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch import Tensor

from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.comm.telemetry import Charge
from edgc.core.policies.amounts import DENSE
from edgc.core.policies.policy import Decision
from edgc.core.settings.method import Method
from edgc.core.settings.reading import load
from edgc.core.synchronisation.outer import OuterSettings
from edgc.core.synchronisation.synchronisation import Moment, SynchronisationSettings
from edgc.tools.laws import scope
from edgc.tools.laws.toy_replica import BUCKETS, CONFIGS, METHODS, PERIOD, SHAPES, STEPS, ToyReplica, parameters, same

#: Two fragments, whose exchanges are under way for a step.
STREAMING = load(Method, "streaming_diloco", CONFIGS).synchronisation
SHORT = STREAMING.model_copy(update={"every": 2 * PERIOD, "fragments": 2, "delay": 1})  # type: ignore[attr-defined]


def cases() -> dict[str, SynchronisationSettings]:
    """Every synchronisation's settings in configs/methods, with a period that fits in; and its defaults.

    Two ranks would gossip the whole way to their mean, and not differ at all.
    """
    found = [method.synchronisation for method in scope.methods()]
    found += scope.defaults("synchronisation")
    steady = ("every", "lowest", "highest")  # what times its exchanges is tested by itself, and here has one period
    fits = dict.fromkeys(steady, PERIOD) | {"consensus": 0.5}
    short = [
        s.model_copy(update={n: v for n, v in fits.items() if n in type(s).model_fields}) if s != STREAMING else SHORT
        for s in found
    ]
    return {settings.model_dump_json(exclude_defaults=True): settings for settings in short}


CASES = cases()
every_case = scope.every_case("settings", CASES)
every_method = pytest.mark.parametrize("method", METHODS)


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


def begun(settings: SynchronisationSettings, step: int) -> list[str]:
    """The parameters whose exchange begins in a step."""
    if isinstance(settings, OuterSettings):
        return [name for name in SHAPES if settings.fragment(name) in settings.launched(step, STEPS)]
    return [*SHAPES] if settings.exchanges_after(step, STEPS) else []


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
            amounts, exchanged = policy.decide(step // settings.period), begun(settings, step)
            decided = {n: aggregator.effective(s, amounts.amount(n)) for n, s in replica.exchange.shapes.items()}
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
            state = again.synchronisation.state_dict()["synchronisation"]
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
