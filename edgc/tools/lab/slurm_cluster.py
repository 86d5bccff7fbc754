"""A real SLURM cluster on one machine: slurmctld here, and a slurmd in the namespace of each node.

Everything is in one folder and in the namespaces: its own munge, its own ports, its own slurm.conf, which the nodes
find at /etc/slurm by a mount that only they see. `SLURM_CONF` tells the commands of this machine where it is.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path
from string import Template

import psutil

from edgc.core.base.errors import UserError
from edgc.core.base.files import read_json, write_json, write_text
from edgc.suite.cluster.network import Network, check_possible, check_root
from edgc.suite.cluster.slurm import ask

FOLDER = Path("/run/edgc-lab")
CONF = FOLDER / "slurm.conf"
TEMPLATE = Path("slurm/lab/slurm.conf")
DAEMONS = ("munged", "slurmctld", "slurmd")
SITE = (Path("/etc/slurm/slurm.conf"), Path("/etc/slurm-llnl/slurm.conf"))
PORTS = {"controller_port": 26817, "node_port": 26818}
START_SECONDS = 30.0


def up(nodes: int, gpus: int, cpus: int = 1, memory_mb: int = 512_000) -> Network:
    """Start a cluster of `nodes` nodes that claim so many GPUs, cores and MB each; wait until all are idle.

    Raises `UserError` where something is missing or in the way, with nothing left behind.
    """
    check_possible()
    check_free()
    network = Network("edgc-lab", nodes, host=True)
    try:
        FOLDER.mkdir(mode=0o755)
        write_json(FOLDER / "lab.json", {"nodes": nodes})
        network.up()
        _configure(network, gpus, cpus, memory_mb)
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        munge = [f"--{option}={FOLDER}/munge.{suffix}" for option, suffix in files.items()]
        _daemon("munged", "--force", *munge)
        _daemon("unshare", "--uts", "sh", "-c", f"hostname lab && exec slurmctld -f {CONF}")
        for node in network.nodes:
            start_node(network, node)
        _wait_until_idle(network)
    except BaseException:
        logs = [path.read_text(errors="replace")[-1500:] for path in sorted(FOLDER.glob("*.log"))]
        down()
        if logs:
            print("\n".join(logs))
        raise
    return network


def down() -> None:
    """End every process of the lab and remove its namespaces, mounts and folder. Nothing to do is no error."""
    if not FOLDER.exists():
        return
    network = _network()
    for node in network.nodes:
        crash(network, node)
    while daemons := _daemons():  # one that has just been started may still go into the background, by forking
        for daemon in daemons:
            _end(daemon)
    network.down()
    shutil.rmtree(FOLDER)


def alive() -> bool:
    """True if a process of the lab runs: a daemon of it, or anything on a node."""
    network = _network()
    return bool(_daemons()) or any(network.pids(node) for node in network.nodes)


def running() -> Network:
    """The lab that is up. Raises `UserError` if there is none, or for other users than root."""
    check_root()
    if not alive():
        raise UserError("lab: it is not up; start it with `edgc lab up`")
    return _network()


def start_node(network: Network, node: str) -> None:
    """Start a node's slurmd in its namespaces: network, host name, and files that only it sees."""
    mounts = {"hosts": "/etc/hosts", "resolv.conf": "/etc/resolv.conf", "etc": "/etc/slurm"}
    steps = ["mount --make-rprivate /", f"hostname {node}"]
    steps += [f"mount --bind {FOLDER / name} {target}" for name, target in mounts.items()]
    steps += [f"exec slurmd -f {CONF} -N {node}"]
    inside = f"--net=/run/netns/{network.namespace(node)}"
    _daemon("nsenter", inside, "unshare", "--mount", "--uts", "sh", "-c", " && ".join(steps))


def crash(network: Network, node: str) -> None:
    """End every process of a node at once, as a power failure would."""
    for _ in range(50):  # a process may start another one while it is being ended
        if not (pids := network.pids(node)):
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    raise UserError(f"lab: processes {network.pids(node)} of node {node} do not end")


def environment() -> dict[str, str]:
    """What SLURM's commands need to find the lab."""
    return {"SLURM_CONF": str(CONF)}


def node_states() -> dict[str, str]:
    """State of every node, as sinfo names it."""
    shown = ask("env", f"SLURM_CONF={CONF}", "sinfo", "--noheader", "--Node", "--format=%N %T")
    return dict(line.split() for line in shown.splitlines())


def check_free() -> None:
    """Raise `UserError` if the lab is up, programs are missing, or a SLURM of somebody else lives here.

    What is left of a lab whose processes have all ended (the machine was restarted, say) is removed.
    """
    if alive():
        raise UserError("lab: it is up already; `edgc lab status` shows it, `edgc lab down` ends it")
    down()
    if missing := [program for program in DAEMONS if shutil.which(program) is None]:
        raise UserError(f"lab: {', '.join(missing)} not found; apt-get install slurm-wlm munge")
    if configured := [str(path) for path in SITE if path.exists()]:
        raise UserError(f"lab: this machine belongs to a SLURM cluster ({configured[0]}); use another one")
    if others := {p.info["name"] for p in psutil.process_iter(["name"])} & {"slurmctld", "slurmd"}:
        raise UserError(f"lab: another SLURM runs on this machine ({', '.join(sorted(others))}); use another one")


def _network() -> Network:
    """The network of the lab in `FOLDER`; without a node where there is none."""
    state = FOLDER / "lab.json"
    return Network("edgc-lab", read_json(state)["nodes"] if state.exists() else 0, host=True)


def _daemons() -> list[psutil.Process]:
    """The lab's own, SLURM's before munge, which they talk to until they end. Not by their pid files: a daemon writes
    its file some time after it has started, and another program may have the pid of one that was killed."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] in DAEMONS and any(str(FOLDER) in word for word in process.info["cmdline"] or ()):
            found.append(process)
    return sorted(found, key=lambda process: process.info["name"], reverse=True)


def _configure(network: Network, gpus: int, cpus: int, memory_mb: int) -> None:
    names = f"NodeName=n[1-{network.count}]"
    lines = [
        f"NodeName={node} NodeAddr={network.address(node)} CPUs={cpus} RealMemory={memory_mb} Gres=gpu:{gpus}"
        for node in network.nodes
    ]
    for folder in ("state", "spool", "etc", "gpus"):
        (FOLDER / folder).mkdir(mode=0o755)
    for gpu in range(gpus):
        path = FOLDER / "gpus" / f"gpu{gpu}"
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # slurmd wants a device: /dev/null
    filled = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        PORTS, folder=FOLDER, controller=network.host_address, nodes="\n".join(lines)
    )
    write_text(CONF, filled)
    write_text(FOLDER / "gres.conf", f"{names} Name=gpu File={FOLDER}/gpus/gpu[0-{gpus - 1}]\n" if gpus else "")
    for name in ("slurm.conf", "gres.conf"):
        (FOLDER / "etc" / name).symlink_to(FOLDER / name)
    hosts = [f"{network.address(node)} {node}" for node in network.nodes]
    hosts += ["127.0.0.1 localhost", f"{network.host_address} lab {socket.gethostname()}"]
    write_text(FOLDER / "hosts", "\n".join(hosts) + "\n")
    write_text(FOLDER / "resolv.conf", "")  # no name server: a look-up fails at once and not after ten seconds
    key = FOLDER / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))


def _wait_until_idle(network: Network) -> None:
    deadline = time.monotonic() + START_SECONDS
    states: dict[str, str] = {}
    while time.monotonic() < deadline:
        try:
            states = node_states()
        except UserError:  # the controller does not answer yet
            states = {}
        if [states.get(node) for node in network.nodes] == ["idle"] * network.count:
            return
        time.sleep(0.1)
    raise UserError(f"lab: nodes are not idle after {START_SECONDS:.0f} s: {states or 'slurmctld does not answer'}")


def _daemon(*command: str) -> None:
    """Run a command that goes into the background by itself; its output would keep pipes open, so it gets none."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode:
        raise UserError(f"lab: {' '.join(command)}: exit code {done.returncode}")


def _end(process: psutil.Process) -> None:
    """End a daemon and wait for it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(5)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(5)
