"""What a site must offer for an experiment: checked before the first job is submitted."""

from __future__ import annotations

import re
import shutil

from edgc.core.base.errors import UserError
from edgc.suite.cluster.slurm.command import ask
from edgc.suite.config import Cluster


def check_site(cluster: Cluster) -> None:
    """Raise `UserError` if SLURM's commands are missing, or there is no such partition with so many nodes."""
    if shutil.which("sbatch") is None:
        raise UserError("sbatch: not found; run this on a login node of a SLURM cluster (or `edgc lab up`), or locally")
    offered = partitions()
    wanted = cluster.schedule.partition
    if wanted is None:
        return
    where = f"schedule.partition = {wanted!r} (cluster {cluster.name})"
    if wanted not in offered:
        raise UserError(f"{where}: no such partition; there are: {', '.join(sorted(offered))}")
    if cluster.nodes > offered[wanted]:
        raise UserError(f"{where}: it has {offered[wanted]} nodes, but nodes = {cluster.nodes}")


def partitions() -> dict[str, int]:
    """Number of nodes of each partition."""
    rows = [line.split() for line in ask("sinfo", "--noheader", "--format=%R %D").splitlines()]
    counts: dict[str, int] = {}
    for name, count in rows:  # a partition has a line for each state of its nodes
        counts[name] = counts.get(name, 0) + int(count)
    return counts


def forgets_jobs() -> int | None:
    """Seconds after which squeue forgets a job that ended, if they are too few to poll it and accounting is there."""
    shown = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", ask("scontrol", "show", "config"), flags=re.MULTILINE))
    seconds = int(shown.get("MinJobAge", "300"))
    accounted = "slurmdbd" in shown.get("AccountingStorageType", "")
    return seconds if seconds < 120 and accounted else None
