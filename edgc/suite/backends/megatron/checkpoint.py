"""Checkpoints that are whole or absent: one file a rank, made visible by one rename.

    checkpoint/step-00000100/{rank-00000.pt, …, complete.json}

Each rank writes into a hidden folder; when all have, rank 0 writes `complete.json` with every file's size and
renames the folder. A folder that a crash left half-written has the wrong name, or a size that does not match.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from edgc.core.base.errors import UserError
from edgc.core.base.files import atomic_open, read_json, write_json


def save(folder: Path, step: int, rank: int, state: dict[str, Any], spec_id: str) -> None:
    """Write this rank's `state` as of `step` finished steps. Collective; afterwards it is the only checkpoint."""
    partial = folder / f".partial-{step:08d}"
    if rank == 0:
        for leftover in folder.glob(".partial-*"):
            shutil.rmtree(leftover)
        partial.mkdir(parents=True)
    dist.barrier()
    with atomic_open(partial / _rank_file(rank), "wb") as stream:
        torch.save(state, stream)
    dist.barrier()
    if rank == 0:
        files = {path.name: path.stat().st_size for path in sorted(partial.glob("rank-*.pt"))}
        write_json(partial / "complete.json", {"step": step, "spec_id": spec_id, "files": files})
        final = folder / f"step-{step:08d}"
        shutil.rmtree(final, ignore_errors=True)  # the same step, written before a crash
        partial.rename(final)
        for older in folder.glob("step-*"):
            if older != final:
                shutil.rmtree(older)
    dist.barrier()


def latest(folder: Path, world: int, spec_id: str) -> Path | None:
    """The newest whole checkpoint, or None. Raises `UserError` if it belongs to another run."""
    for candidate in sorted(folder.glob("step-*"), reverse=True):
        try:
            complete = read_json(candidate / "complete.json")
            sizes = {path.name: path.stat().st_size for path in candidate.glob("rank-*.pt")}
        except (OSError, ValueError):
            continue
        if complete["files"] != sizes:
            continue
        if complete["spec_id"] != spec_id or len(sizes) != world:
            raise UserError(
                f"{candidate}: written by run {complete['spec_id']} on {len(sizes)} processes, this is {spec_id} on "
                f"{world}; remove the folder or train into another one"
            )
        return candidate
    return None


def load(checkpoint: Path, rank: int) -> dict[str, Any]:
    """This rank's state, on the CPU: random states must be there. Tensors and plain values are read, never code."""
    return torch.load(checkpoint / _rank_file(rank), map_location="cpu", weights_only=True)


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"
