"""Which rank failed first, and why: what a failed run says in one screen."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from edgc.core.base import files

TERMINATED = 128 + signal.SIGTERM  #: exit code of a rank that the launcher has ended, as another one had failed
ERRORS = "errors"  #: in the run's folder: what ranks (rank-*.json) and nodes (node-*.json) report


@dataclass(frozen=True)
class Failure:
    """A process that ended badly: its exit code, negative for a signal, and when its node noticed, in Unix seconds."""

    rank: int
    exit_code: int
    time: float


def log_path(run_dir: Path, rank: int) -> Path:
    """Where a rank's output goes."""
    return run_dir / "stdout.log" if rank == 0 else run_dir / "logs" / f"rank-{rank:05d}.log"


def write_failures(run_dir: Path, node: int, failures: list[Failure]) -> None:
    """Leave a node's failures where the launcher finds them."""
    files.write_json(run_dir / ERRORS / f"node-{node:05d}.json", [asdict(failure) for failure in failures])


def read_failures(run_dir: Path) -> list[Failure]:
    """What the nodes left."""
    return [Failure(**one) for path in (run_dir / ERRORS).glob("node-*.json") for one in files.read_json(path)]


def explain(run_dir: Path, failures: list[Failure], otherwise: str = "") -> str:
    """One screen: which rank failed first, its error, and where the rest is; `otherwise` where no rank tells.

    A rank that was killed is the cause, whenever its peers noticed; SIGTERM is how the launcher ends the others.
    """
    killed = [f for f in failures if f.exit_code < 0 and -f.exit_code != signal.SIGTERM]
    reports = [files.read_json(path) for path in (run_dir / ERRORS).glob("rank-*.json")]
    ended = [f for f in failures if f.exit_code > 0 and f.exit_code != TERMINATED]
    if killed:
        first = min(killed, key=lambda f: (f.time, f.rank))
        hint = " (the system may have run out of memory)" if -first.exit_code == signal.SIGKILL else ""
        rank, cause = first.rank, f"process was ended by {signal.Signals(-first.exit_code).name}{hint}"
    elif reports:
        report = min(reports, key=lambda report: report["time"])
        rank, cause = report["rank"], report["message"]
        if report["known"]:
            return cause
    elif ended:
        first = min(ended, key=lambda f: (f.time, f.rank))
        rank, cause = first.rank, f"process exited with code {first.exit_code}"
    else:
        return f"{otherwise}\nlogs: {log_path(run_dir, 0)}, {run_dir / 'logs'}"
    return f"rank {rank} failed first: {cause}\nlog: {log_path(run_dir, rank)}\n{started_again(run_dir)}"


def started_again(run_dir: Path) -> str:
    """What happens to a run that ended early when it is started again."""
    step = saved_step(run_dir)
    return f"started again, it goes on from its checkpoint at step {step}" if step else "started again, it begins anew"


def saved_step(run_dir: Path) -> int:
    """The step of the last checkpoint, 0 if there is none."""
    return max((int(path.name.removeprefix("step-")) for path in (run_dir / "checkpoint").glob("step-*")), default=0)
