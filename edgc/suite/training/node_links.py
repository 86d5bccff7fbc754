"""The network of a run's processes: everything that tells gloo and NCCL how to behave, and the cluster setting `links`.

With `links` every process of a run on one machine has a network namespace and a link of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from edgc.core.base import files
from edgc.suite.cluster.network import Network, network
from edgc.suite.config import Cluster
from edgc.suite.config.rate import bits_per_second

LOCK = Path("/run/edgc-links.lock")
INTERFACE = "eth0"  #: a process's, in its namespace


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


def network_of(cluster: Cluster) -> Network:
    """The network of a cluster with links; this machine takes part, so that its launcher can be reached."""
    return Network("edgc-links", cluster.processes, "10.231.78", host=True)


@contextmanager
def links(cluster: Cluster) -> Iterator[Network | None]:
    """The cluster's network while the body runs; None where its processes share the machine's.

    One at a time: two would share the machine's cores, and neither could be timed.
    """
    if cluster.links is None:
        yield None
        return
    taken = "another run uses links on this machine; wait for it or stop it"
    with files.only_process(LOCK, taken), network(network_of(cluster), cluster.links.rate) as made:
        if cluster.links.trace is not None:
            set_rates(made, cluster.links.trace.rates(0, cluster.processes))
        yield made


def set_rates(made: Network, rates: Sequence[str]) -> None:
    """Give every process's link its rate, also while used. Raises `RuntimeError` if the kernel says otherwise."""
    for rate in dict.fromkeys(rates):
        made.shape(rate, [node for node, own in zip(made.nodes, rates, strict=True) if own == rate])
    for node, rate in zip(made.nodes, rates, strict=True):
        for end in made.limits(node):
            if end is None or abs(end - bits_per_second(rate)) > 8:  # it counts whole bytes
                raise RuntimeError(f"link of {node}: was set to {rate}, but the kernel says {end} bits a second")


def enter(cluster: Cluster, local_rank: int) -> None:
    """Move this process, which has one thread so far, to its own link, if the cluster has links."""
    if cluster.links is not None:
        made = network_of(cluster)
        made.enter(made.nodes[local_rank])


HEADERS = 14 + 20 + 32  #: bytes of a packet: Ethernet, IPv4, TCP with its time stamps


def sent(cluster: Cluster) -> int | None:
    """Bytes that the packets of this process's own interface carried since it exists; None where it has none.

    Without their headers: an acknowledgement carries nothing.
    """
    if cluster.links is None:
        return None
    counted = psutil.net_io_counters(pernic=True, nowrap=False).get(INTERFACE)
    if counted is None:
        raise RuntimeError(f"this process has no interface {INTERFACE}")
    return counted.bytes_sent - HEADERS * counted.packets_sent
