"""Every registered synchronisation keeps its laws, and reads older checkpoints."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest

from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.policy import Observation
from edgc.core.settings.method import Method
from edgc.core.settings.reading import load
from edgc.core.synchronisation import SYNCHRONISATIONS
from edgc.core.synchronisation.every_step import EveryStepSettings
from edgc.tools.laws.synchronisation_laws import *  # noqa: F403
from edgc.tools.laws.synchronisation_laws import SHORT
from edgc.tools.laws.toy_replica import CONFIGS, STEPS, ToyReplica, parameters, same
from tests.fixtures.ranks import every_rank

#: What checkpoints hold of each synchronisation, beside its exchange: runs that were begun go on by these names.
IN_CHECKPOINTS = {
    "delayed": {"late", "records", "then", "square"},
    "outer": {"global", "momentum", "late", "worst", "losses"},
    "paced": {"global", "momentum", "late", "worst", "losses", "local_steps", "begun", "done", "spent"},
    "differences": {"average", "before"},
    "dion": {"momentum"},
    "frozen_variance": {"steps"},
    "gossip": {"alarm", "met"},
}


@pytest.mark.parametrize("name", ["lgreco_topk", "ramp"])
@every_rank(2)
def test_a_policy_sees_the_same_wherever_a_run_was_cut(comm: LoopbackCommunicator, name: str) -> None:
    """Also where a round's exchanges and its end are steps apart."""
    known = load(Method, name, CONFIGS)
    policy = known.policy.model_copy(update={"window": 1})
    method = known.model_copy(update={"policy": policy})

    def build(seen: list[Observation]) -> ToyReplica:
        replica = ToyReplica(comm, SHORT, method)
        decides = replica.exchange.policy
        observe = decides.observe
        decides.observe = lambda observation: (seen.append(observation), observe(observation))  # type: ignore[method-assign]
        return replica

    expected, found = [], []
    whole, cut = build(expected), build(found)
    for step in range(STEPS):
        whole.step(step)
        cut.step(step)
        state = deepcopy(cut.state_dict())
        cut = build(found)
        cut.load_state_dict(state)
    assert expected == found
    assert any(seen.squared_error or seen.spectrum or seen.relative_error for seen in expected)
    assert same(parameters(whole), parameters(cut))


@every_rank(2)
def test_what_dion_has_not_sent_is_forgotten_with_the_ranks_that_held_it(comm: LoopbackCommunicator) -> None:
    replica = ToyReplica(comm, load(Method, "dion", CONFIGS).synchronisation, "powersgd")
    replica.step(0)
    assert replica.synchronisation._momentum  # type: ignore[attr-defined]
    replica.synchronisation.forget()
    assert not replica.synchronisation._momentum  # type: ignore[attr-defined]
    assert math.isfinite(replica.step(1))


def test_older_checkpoints_are_read() -> None:
    for name, kind in SYNCHRONISATIONS.items():
        assert IN_CHECKPOINTS.get(name, set()) <= {*kind.kept}, name

    def body(comm: LoopbackCommunicator) -> None:
        whole, cut = (ToyReplica(comm, EveryStepSettings(name="every_step"), "powersgd") for _ in range(2))
        whole.step(0)
        state = deepcopy(whole.state_dict())
        cut.load_state_dict({part: state[part] for part in ("parameters", "optimizer", "exchange")})
        whole.step(1)
        cut.step(1)
        assert same(parameters(whole), parameters(cut))

    run_ranks(2, body)
