"""Start a run's processes on this machine by torchrun's launcher, and say in one screen why it failed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from edgc import files
from edgc.config import RunSpec
from edgc.data.dataset import open_corpus
from edgc.errors import EXIT_DIVERGED, Diverged, UserError
from edgc.training.progress import following
from edgc.training.worker import ERRORS, log_path

MONITOR_SECONDS = 0.2


def launch(spec: RunSpec, run_dir: Path, corpus_dir: Path) -> None:
    """Train `spec` with all its processes on this machine. A finished run is left as it is.

    Raises `Diverged` or `UserError`; `status.json` is written in every case.
    """
    status = run_dir / "status.json"
    if status.exists() and files.read_json(status)["status"] == "done":
        return
    check_machine(spec)
    open_corpus(corpus_dir, spec.model.seq_length, spec.training.global_batch)
    status.unlink(missing_ok=True)
    shutil.rmtree(run_dir / ERRORS, ignore_errors=True)
    files.write_json(run_dir / "spec.json", spec.model_dump(mode="json"))
    os.environ["EDGC_LAUNCHED_AT"] = str(time.time())
    with following(run_dir, spec):
        failure = _run_processes(spec, run_dir, corpus_dir)
    if failure is None:
        return
    message = explain(run_dir, failure)
    if failure["exit_code"] == EXIT_DIVERGED:
        raise Diverged(message)
    steps = files.read_jsonl(run_dir / "steps.jsonl")
    record = {"status": "failed", "step": steps[-1]["step"] if steps else 0, "iterations": spec.training.iterations}
    files.write_json(status, record | {"message": message})
    raise UserError(message)


def check_machine(spec: RunSpec) -> None:
    """Refuse before anything starts what cannot work here: several nodes, missing GPUs, a taken port."""
    cluster = spec.cluster
    if cluster.nodes > 1:
        raise UserError(
            f"cluster.nodes = {cluster.nodes} ({cluster.name}): this command starts processes on one machine; "
            "several nodes need a batch system: snakemake --profile slurm"
        )
    if cluster.device == "cuda":
        import torch

        if torch.cuda.device_count() < cluster.processes_per_node:
            raise UserError(
                f"cluster.processes_per_node = {cluster.processes_per_node} ({cluster.name}): this machine has "
                f"{torch.cuda.device_count()} GPUs; choose a cluster with device: cpu or fewer processes"
            )
    if cluster.port is not None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("localhost", cluster.port))
            except OSError as error:
                raise UserError(
                    f"cluster.port = {cluster.port} ({cluster.name}): {error.strerror}; "
                    "choose another port, or null for a free one"
                ) from None


def _run_processes(spec: RunSpec, run_dir: Path, corpus_dir: Path) -> dict[str, Any] | None:
    """Run to the end. None, or rank and exit code of the process that failed first; the others are ended then."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.cluster.processes_per_node,
        run_id=spec.spec_id,
        rdzv_backend="c10d",
        rdzv_endpoint=f"localhost:{spec.cluster.port or 0}",
        max_restarts=0,
        monitor_interval=MONITOR_SECONDS,
        logs_specs=DefaultLogsSpecs(log_dir=str(run_dir / "logs")),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "edgc.training.worker", str(run_dir), str(corpus_dir))
    except ChildFailedError as error:
        rank, first = error.get_first_failure()
        return {"rank": rank, "exit_code": first.exitcode}
    return None


def explain(run_dir: Path, failure: dict[str, Any]) -> str:
    """One screen: which rank failed first, its error, and where the rest is."""
    reports = [files.read_json(path) for path in (run_dir / ERRORS).glob("rank-*.json")]
    first = min(reports, key=lambda report: report["time"], default=None)
    killed = failure["exit_code"] < 0 and (first is None or first["rank"] != failure["rank"])
    if killed or first is None:
        code = failure["exit_code"]
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        hint = " (the system may have run out of memory)" if code == -signal.SIGKILL else ""
        cause, rank = f"process {how}{hint}", failure["rank"]
    else:
        cause, rank = first["message"], first["rank"]
        if first["known"]:
            return cause
    log = log_path(run_dir, rank)
    return f"rank {rank} failed first: {cause}\nlog: {log}\nthe run continues from its last checkpoint when started again"
