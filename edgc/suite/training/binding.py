"""Cores of a process's own (cluster setting `bind_to_cores`).

Where processes share cores unevenly, which the system's scheduler lets happen for tenths of a second, the step of a
job is that of its unluckiest process, and the step of a process that waits for nobody is that of a luckier one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from edgc.suite.config import Cluster


def bind(cluster: Cluster, local_rank: int) -> None:
    """Bind this process, and what it starts from now on, to its share of the cores, if the cluster wants it."""
    if cluster.bind_to_cores:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, share(cores, cluster.processes_per_node, local_rank))


def share(cores: Sequence[int], processes: int, index: int) -> set[int]:
    """Neighbouring cores of process `index`; of fewer cores than processes one, dealt out in turn.

    Dealt out so that processes of one pipeline stage, which work at the same time, have different cores.
    """
    each = len(cores) // processes
    return set(cores[index * each : (index + 1) * each]) if each else {cores[index % len(cores)]}
