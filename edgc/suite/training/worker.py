"""What torchrun's launcher starts on every rank: `forked`, or `python -m edgc.suite.training.worker RUN_DIR
CORPUS_DIR`."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.core.ops import backend
from edgc.suite.config import Cluster, RunSpec
from edgc.suite.config.timing import Session
from edgc.suite.training.failures import ERRORS, log_path
from edgc.suite.training.node_links import enter
from edgc.suite.training.stopping import outlive_a_request

NAME = "edgc-rank-"  #: of a forked process, before its rank
SEEN_SECONDS = 0.5  #: the launcher looks more often: it sees a rank that was killed before those that it made fail


def end_with_launcher() -> None:
    """End this process when the one that launched it is gone, so that nobody trains unseen."""
    launcher = multiprocessing.parent_process()
    if launcher is not None:  # forked: its parent for the kernel is the server of `multiprocessing`

        def wait() -> None:
            launcher.join()
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=wait, daemon=True).start()
    elif sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.environ.get("EDGC_LAUNCHER", str(os.getppid())) != str(os.getppid()):  # it went before we asked
            os._exit(1)


def forked(run_dir: Path, corpus_dir: Path) -> None:
    """`main` in a process that was forked: apart from the launcher's terminal, and with a name that `top` shows."""
    os.setsid()
    if sys.platform == "linux":
        pr_set_name = 15
        ctypes.CDLL(None).prctl(pr_set_name, f"{NAME}{os.environ['RANK']}".encode())
    main(run_dir, corpus_dir)


def main(run_dir: Path, corpus_dir: Path) -> int:
    """Train with output in the rank's log; an error leaves `errors/rank-N.json`. Returns the exit code."""
    outlive_a_request(run_dir)
    end_with_launcher()
    rank = int(os.environ["RANK"])
    path = log_path(run_dir, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", buffering=1) as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
        try:
            spec = validate(RunSpec, files.read_json(run_dir / "spec.json"), "spec.json")
            local_rank = int(os.environ["LOCAL_RANK"])
            enter(spec.cluster, local_rank)
            bind(spec.cluster, local_rank)
            backend.choose(spec.cluster.kernels, spec.cluster.device)
            if session := Session.read(run_dir):
                from edgc.suite.training.contenders import time_methods

                time_methods(session, run_dir, corpus_dir)
            else:
                from edgc.suite.training.loop import train

                train(spec, run_dir, corpus_dir)
        except Exception as error:
            known = isinstance(error, UserError)
            message = str(error) if known else f"{type(error).__name__}: {error}"
            print(message if known else traceback.format_exc(), file=sys.stderr, flush=True)
            record = {"rank": rank, "time": time.time(), "message": message, "known": known}
            files.write_json(run_dir / ERRORS / f"rank-{rank:05d}.json", record)
            if not known:
                time.sleep(SEEN_SECONDS)
            # not an ordinary exit: a rank that leaves cleanly would wait for peers that are stuck in a collective
            os._exit(error.exit_code if isinstance(error, UserError) else 1)
    return 0


def bind(cluster: Cluster, local_rank: int) -> None:
    """Bind this process, and what it starts from now on, to its share of the cores, if the cluster wants it.

    Where processes share cores unevenly, which the system's scheduler lets happen for tenths of a second, the step of a
    job is that of its unluckiest process, and the step of a process that waits for nobody is that of a luckier one.
    """
    if cluster.bind_to_cores:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, share(cores, cluster.processes_per_node, local_rank))


def share(cores: Sequence[int], processes: int, index: int) -> set[int]:
    """Neighbouring cores of process `index`; of fewer cores than processes one, dealt out in turn.

    Dealt out so that processes of one pipeline stage, which work at the same time, have different cores.
    """
    each = len(cores) // processes
    return set(cores[index * each : (index + 1) * each]) if each else {cores[index % len(cores)]}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
