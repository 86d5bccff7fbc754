"""Every registered synchronisation keeps its laws, and reads older checkpoints."""

from __future__ import annotations

from copy import deepcopy

from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.synchronisation import SYNCHRONISATIONS
from edgc.core.synchronisation.every_step import EveryStepSettings
from edgc.tools.laws.synchronisation_laws import *  # noqa: F403
from edgc.tools.laws.toy_replica import ToyReplica, parameters, same

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
