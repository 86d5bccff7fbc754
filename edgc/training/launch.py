"""Start a run's processes on this machine by torchrun's launcher, and say in one screen why it failed."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from edgc import files
from edgc.config import RunSpec
from edgc.data.dataset import open_corpus
from edgc.errors import EXIT_DIVERGED, Diverged, Interrupted, UserError
from edgc.settings import validate
from edgc.training.progress import following
from edgc.training.worker import ERRORS, log_path

MONITOR_SECONDS = 0.2


def launch(spec: RunSpec, run_dir: Path, corpus_dir: Path) -> None:
    """Train `spec` with all its processes on this machine. A run that is done, or diverged, is left as it is.

    Raises `Diverged` or `UserError` with `status.json` saying so, and `Interrupted` by a signal: the run is then
    unfinished, without a status.
    """
    with files.only_process(run_dir / "lock", f"another process trains into {run_dir}; wait for it or stop it"):
        _launch(spec, run_dir, corpus_dir)


def _launch(spec: RunSpec, run_dir: Path, corpus_dir: Path) -> None:
    """`launch`, in a folder that is this process's own."""
    status = run_dir / "status.json"
    corpus = open_corpus(corpus_dir, spec.model.seq_length, spec.training.global_batch)
    check_folder(spec, run_dir, corpus.manifest)
    ended = files.read_json(status) if status.exists() else {"status": None}
    if ended["status"] == "done" and (run_dir / "export").is_dir():
        return
    if ended["status"] == "diverged":
        raise Diverged(f"{ended['message']}\n(it ended so before; remove {run_dir} to try again)")
    check_machine(spec)
    status.unlink(missing_ok=True)
    shutil.rmtree(run_dir / ERRORS, ignore_errors=True)
    files.write_json(run_dir / "spec.json", spec.model_dump(mode="json"))
    os.environ |= {"EDGC_LAUNCHED_AT": str(time.time()), "EDGC_LAUNCHER": str(os.getpid())}
    with following(run_dir, spec):
        exit_codes = _run_processes(spec, run_dir, corpus_dir)
    if not exit_codes:
        return
    message = explain(run_dir, exit_codes)
    if EXIT_DIVERGED in exit_codes.values():
        raise Diverged(message)
    steps = files.read_jsonl(run_dir / "steps.jsonl")
    record = {"status": "failed", "step": steps[-1]["step"] if steps else 0, "iterations": spec.training.iterations}
    files.write_json(status, record | {"message": message})
    raise UserError(message)


def check_folder(spec: RunSpec, run_dir: Path, corpus: dict[str, Any]) -> None:
    """Refuse a folder that holds another run, and a corpus that is not this run's."""
    if corpus["settings"] != spec.corpus.model_dump(mode="json"):
        raise UserError(
            f"--corpus: that folder holds corpus {corpus['settings']['name']} with other settings than this run's "
            f"corpus {spec.corpus.name}; prepare it with `edgc prepare {spec.corpus.name} --out FOLDER`"
        )
    known = run_dir / "spec.json"
    if known.exists() and (other := validate(RunSpec, files.read_json(known), str(known))).spec_id != spec.spec_id:
        raise UserError(f"--out {run_dir}: holds run {other.run_id}, not {spec.run_id}; choose another folder")
    manifest = run_dir / "manifest.json"
    if manifest.exists() and files.read_json(manifest)["corpus"] != corpus["sha256"]:
        raise UserError(
            f"{run_dir}: was trained on other text than corpus {spec.corpus.name} holds now; "
            "remove the folder to train it anew, or restore the text"
        )


def check_machine(spec: RunSpec) -> None:
    """Refuse before anything starts what cannot work here: several nodes, missing GPUs, a taken port …"""
    cluster = spec.cluster
    if spec.training.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise UserError("training.tensorboard = true: the package is not installed; pip install tensorboard")
    if cluster.nodes > 1:
        raise UserError(
            f"cluster.nodes = {cluster.nodes} ({cluster.name}): runs are started on one machine only so far; "
            "choose a cluster with nodes: 1"
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


def _run_processes(spec: RunSpec, run_dir: Path, corpus_dir: Path) -> dict[int, int]:
    """Run to the end. Exit codes by rank of the processes that failed; one failure ends all the others."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # `explain` says it in one screen
    with tempfile.TemporaryDirectory() as unused:  # workers write their own logs
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=spec.cluster.processes_per_node,
            run_id=spec.spec_id,
            rdzv_backend="c10d",
            rdzv_endpoint=f"localhost:{spec.cluster.port or 0}",
            max_restarts=0,
            monitor_interval=MONITOR_SECONDS,
            logs_specs=DefaultLogsSpecs(log_dir=unused),
        )
        try:
            elastic_launch(config, sys.executable)("-m", "edgc.training.worker", str(run_dir), str(corpus_dir))
        except ChildFailedError as error:
            return {rank: failure.exitcode for rank, failure in error.failures.items()}
        except SignalException as stop:  # its processes are gone by now
            how = signal.Signals(stop.sigval).name
            raise Interrupted(f"stopped by {how}; started again, {run_dir} goes on from its last checkpoint") from None
    return {}


def explain(run_dir: Path, exit_codes: dict[int, int]) -> str:
    """One screen: which rank failed first, its error, and where the rest is.

    A rank that was killed is the cause, whenever its peers noticed; SIGTERM is how the launcher ends the others.
    """
    killed = {rank: -code for rank, code in exit_codes.items() if code < 0 and -code != signal.SIGTERM}
    reports = [files.read_json(path) for path in (run_dir / ERRORS).glob("rank-*.json")]
    if killed:
        rank, number = min(killed.items())
        hint = " (the system may have run out of memory)" if number == signal.SIGKILL else ""
        cause = f"process was ended by {signal.Signals(number).name}{hint}"
    elif reports:
        first = min(reports, key=lambda report: report["time"])
        rank, cause = first["rank"], first["message"]
        if first["known"]:
            return cause
    else:
        rank, code = min(exit_codes.items())
        cause = f"process exited with code {code}"
    log = log_path(run_dir, rank)
    return (
        f"rank {rank} failed first: {cause}\nlog: {log}\nthe run continues from its last checkpoint when started again"
    )
