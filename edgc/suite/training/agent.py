"""A run's processes on one node, by torchrun's launcher. On several nodes srun starts one of these on each:

python -m edgc.suite.training.agent RUN_DIR CORPUS_DIR HOST:PORT
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from edgc.core.base import files
from edgc.core.base.settings import validate
from edgc.suite.config import RunSpec
from edgc.suite.training import stopping
from edgc.suite.training.failures import Failure, write_failures
from edgc.suite.training.node_links import links, network_environment
from edgc.suite.training.worker import forked

MONITOR_SECONDS = 0.2
JOIN_SECONDS = 300  # that nodes may take to arrive, one after another


def run_node(
    spec: RunSpec, run_dir: Path, corpus_dir: Path, node: int = 0, endpoint: str | None = None
) -> list[Failure]:
    """Run this node's processes to the end. Returns those that failed; one failure ends all the others.

    `endpoint`: HOST:PORT of node 0 where there are several nodes. Raises torch's `SignalException` on SIGINT.
    """
    os.environ |= network_environment(spec.cluster) | {"EDGC_LAUNCHER": str(os.getpid())}
    start, program, arguments = _process(spec, run_dir, corpus_dir)
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in ("torch.distributed.elastic", "torch.multiprocessing.spawn"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # `explain` says it in one screen
    meeting: dict[str, Any] = {"rdzv_backend": "c10d", "rdzv_endpoint": f"localhost:{spec.cluster.port or 0}"}
    if endpoint is not None:  # ranks follow the nodes' order, not that of their arrival
        configs = {"rank": node, "timeout": JOIN_SECONDS}
        meeting = {"rdzv_backend": "static", "rdzv_endpoint": endpoint, "rdzv_configs": configs}
    # workers write their own logs
    with tempfile.TemporaryDirectory() as unused, links(spec.cluster) as network:
        if network is not None:
            address = network.host_address
            meeting |= {
                "rdzv_endpoint": f"{address}:{spec.cluster.port or 0}",
                "rdzv_configs": {"is_host": True},
                "local_addr": address,
            }
        config = LaunchConfig(
            min_nodes=spec.cluster.nodes,
            max_nodes=spec.cluster.nodes,
            nproc_per_node=spec.cluster.processes_per_node,
            run_id=spec.spec_id,
            start_method=start,
            max_restarts=0,
            monitor_interval=MONITOR_SECONDS,
            logs_specs=DefaultLogsSpecs(log_dir=unused),
            signals_to_handle="SIGINT,SIGHUP,SIGQUIT",  # see `stopping.on_signals` for the others
            **meeting,
        )
        try:
            elastic_launch(config, program)(*arguments)
        except ChildFailedError as error:
            return [Failure(rank, f.exitcode, f.timestamp) for rank, f in error.failures.items()]
    return []


def _process(spec: RunSpec, run_dir: Path, corpus_dir: Path) -> tuple[str, Callable | str, tuple[Any, ...]]:
    """How a process is started, what it is, and its arguments.

    On CPUs all are forked from one that has imported what they need, which takes each of them seconds otherwise. Where
    there are GPUs each is a program of its own: an import may touch the driver, which does not survive a fork.
    """
    if spec.cluster.device != "cpu":
        return "spawn", sys.executable, ("-m", "edgc.suite.training.worker", str(run_dir), str(corpus_dir))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # megatron would take a GPU that it sees
    multiprocessing.get_context("forkserver").set_forkserver_preload(["edgc.suite.training.preload"])
    forkserver.ensure_running()  # imports while this process does
    return "forkserver", forked, (run_dir, corpus_dir)


def main(run_dir: Path, corpus_dir: Path, endpoint: str) -> int:
    """This node's part of a run on several nodes. Returns the exit code: 1 if one of its processes failed."""
    node = int(os.environ["SLURM_NODEID"])
    spec = validate(RunSpec, files.read_json(run_dir / "spec.json"), "spec.json")
    with stopping.on_signals(run_dir):
        failed = run_node(spec, run_dir, corpus_dir, node, endpoint)
    if failed:
        write_failures(run_dir, node, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
