"""Environment variables of a run's processes: everything that tells gloo and NCCL how to behave is set here."""

from __future__ import annotations

from edgc.suite.config import Cluster
from edgc.suite.training.node_links import INTERFACE


def network_environment(cluster: Cluster) -> dict[str, str]:
    """What the processes of a job on `cluster` get beside what the user has set; the cluster's file has the last word.

    An NCCL collective that fails ends its process, so that the launcher notices (its default, made certain here). One
    connection to a GPU keeps kernels in the order of their launch, as megatron's overlap needs before Blackwell.
    """
    cuda = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    chosen = cuda if cluster.device == "cuda" else {}
    interface = INTERFACE if cluster.links else cluster.interface
    if interface:
        chosen |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return chosen | cluster.environment
