"""What torchrun starts on every rank: `python -m edgc.training.worker RUN_DIR CORPUS_DIR`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from edgc.base import files
from edgc.base.errors import UserError
from edgc.config import RunSpec
from edgc.config.settings import validate
from edgc.ops import backend
from edgc.training.binding import bind
from edgc.training.failures import ERRORS, log_path
from edgc.training.node_links import enter
from edgc.training.session import Session
from edgc.training.stopping import outlive_a_request


def end_with_launcher() -> None:
    """Ask the kernel to end this process when the one that launched it is gone, so that nobody trains unseen."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.environ.get("EDGC_LAUNCHER", str(os.getppid())) != str(os.getppid()):  # it went before we asked
            os._exit(1)


def main(run_dir: Path, corpus_dir: Path) -> int:
    """Train with output in the rank's log; an error leaves `errors/rank-N.json`. Returns the exit code."""
    end_with_launcher()
    outlive_a_request(run_dir)
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
            if spec.cluster.device == "cpu":
                os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch: megatron would take a GPU that it sees
            backend.choose(spec.cluster.kernels, spec.cluster.device)
            if session := Session.read(run_dir):
                from edgc.training.contenders import time_methods

                time_methods(session, run_dir, corpus_dir)
            else:
                from edgc.training.loop import train

                train(spec, run_dir, corpus_dir)
        except Exception as error:
            known = isinstance(error, UserError)
            message = str(error) if known else f"{type(error).__name__}: {error}"
            print(message if known else traceback.format_exc(), file=sys.stderr, flush=True)
            record = {"rank": rank, "time": time.time(), "message": message, "known": known}
            files.write_json(run_dir / ERRORS / f"rank-{rank:05d}.json", record)
            # not an ordinary exit: a rank that leaves cleanly would wait for peers that are stuck in a collective
            os._exit(error.exit_code if isinstance(error, UserError) else 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
