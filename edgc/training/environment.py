"""Environment variables of a run's processes: everything that tells gloo and NCCL how to behave is set here."""

from __future__ import annotations

from edgc.config import Cluster
from edgc.training.node_links import INTERFACE


def network_environment(cluster: Cluster) -> dict[str, str]:
    """What the processes of a job on `cluster` get beside what the user has set; the cluster's file has the last word.

    An NCCL collective that fails ends its process, so that the launcher notices (its default, made certain here).
    """
    chosen = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"} if cluster.device == "cuda" else {}
    interface = INTERFACE if cluster.links else cluster.interface
    if interface:
        chosen |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return chosen | cluster.environment
