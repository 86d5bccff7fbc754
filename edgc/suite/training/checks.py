"""What `edgc train` refuses before anything starts."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.suite.cluster.network import check_possible
from edgc.suite.cluster.slurm import Allocation
from edgc.suite.config import RunSpec


def check_folder(spec: RunSpec, run_dir: Path, corpus: dict[str, Any]) -> None:
    """Refuse a folder that holds another run, and a corpus that is not this run's."""
    check_corpus(spec, corpus)
    known = run_dir / "spec.json"
    if known.exists() and (other := validate(RunSpec, files.read_json(known), str(known))).spec_id != spec.spec_id:
        raise UserError(f"--out {run_dir}: holds run {other.run_id}, not {spec.run_id}; choose another folder")
    manifest = run_dir / "manifest.json"
    if manifest.exists() and files.read_json(manifest)["corpus"] != corpus["sha256"]:
        raise UserError(
            f"{run_dir}: was trained on other text than corpus {spec.corpus.name} holds now; "
            "remove the folder to train it anew, or restore the text"
        )


def check_corpus(spec: RunSpec, corpus: dict[str, Any]) -> None:
    """Refuse a corpus that is not this run's."""
    if corpus["settings"] != spec.corpus.model_dump(mode="json"):
        raise UserError(
            f"--corpus: that folder holds corpus {corpus['settings']['name']} with other settings than this run's "
            f"corpus {spec.corpus.name}; prepare it with `edgc prepare {spec.corpus.name} --out FOLDER`"
        )


def check_loop(spec: RunSpec) -> None:
    """Refuse what megatron's loop has and the plain one has not."""
    if why := spec.cannot_launch():
        raise UserError(why)


def check_machine(spec: RunSpec, job: Allocation | None) -> None:
    """Refuse before anything starts what cannot work here: nodes that this job has not, missing GPUs, a taken port …"""
    cluster = spec.cluster
    if spec.training.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "training.tensorboard = true: package tensorboard is not installed; use `pip install tensorboard`, or set "
            "it to false"
        )
    if cluster.nodes > 1:
        if job is None or len(job.nodes) != cluster.nodes:
            here = "this is no SLURM job" if job is None else f"job {job.job_id} has {len(job.nodes)}"
            raise UserError(
                f"cluster.nodes = {cluster.nodes} ({cluster.name}): {here}; run the experiment with "
                f"`snakemake --profile slurm`, start edgc train by sbatch --nodes={cluster.nodes}, or choose a cluster "
                "with nodes: 1"
            )
        return
    if cluster.device == "cuda":
        import torch

        if torch.cuda.device_count() < cluster.gpus_per_node:
            raise UserError(
                f"cluster.processes_per_node = {cluster.processes_per_node} ({cluster.name}): they need "
                f"{cluster.gpus_per_node} GPUs, and this machine has {torch.cuda.device_count()}; choose a cluster "
                "with device: cpu or fewer processes, or let some share a GPU (cluster.processes_per_gpu)"
            )
    if cluster.links is not None:
        check_possible()
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
