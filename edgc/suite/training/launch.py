"""Start a run's processes, see it through to its end, and say in one screen why it failed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgc.core.base import files
from edgc.core.base.errors import EXIT_DIVERGED, Diverged, Interrupted, OutOfTime, UserError
from edgc.suite.cluster import slurm
from edgc.suite.cluster.slurm import Allocation
from edgc.suite.config import RunSpec
from edgc.suite.config.timing import Session, run_folder
from edgc.suite.training import stopping
from edgc.suite.training.agent import run_node
from edgc.suite.training.checks import check_corpus, check_folder, check_loop, check_machine
from edgc.suite.training.data.dataset import open_corpus
from edgc.suite.training.failures import ERRORS, Failure, explain, read_failures, saved_step, started_again
from edgc.suite.training.load import check_quiet

LOG, JOB = "launch.log", "job.json"  #: in the run's folder: why the last start did not end well; a sign of life
BEAT_SECONDS = 30.0


def launch(spec: RunSpec, run_dir: Path, corpus_dir: Path, wait: bool = False) -> None:
    """Train `spec` with all its processes: on this machine, or on the nodes of the SLURM job that this is.

    A run that is done, or diverged, is left as it is. Raises `Diverged` or `UserError` with `status.json` saying so.
    A run that is asked to stop (SIGTERM, SIGUSR1, or the job's time is nearly up) saves its state first: `Interrupted`
    if somebody wants it so, `OutOfTime` if SLURM does not queue the job again. A process that trains into the folder
    already is waited for if `wait` and both are on this machine; otherwise it is a `UserError`.
    """
    with _own(run_dir, wait):
        status = run_dir / "status.json"
        corpus = open_corpus(corpus_dir, spec.model.seq_length, spec.training.global_batch)
        check_folder(spec, run_dir, corpus.manifest)
        check_loop(spec)
        ended = files.read_json(status) if status.exists() else {"status": None}
        if ended["status"] == "done" and (run_dir / "export").is_dir():
            return
        if ended["status"] == "diverged":
            raise Diverged(f"{ended['message']}\n(it ended so before; remove {run_dir} to try again)")
        _launch(spec, run_dir, corpus_dir)


def launch_session(session: Session, folder: Path, corpus_dir: Path, wait: bool = False) -> None:
    """Time the session's methods in turn, in one launch of all its processes; their records replace earlier ones.

    Raises `UserError` as `launch` does, and on a machine whose cores are in use. What was stopped begins anew.
    """
    with _own(folder, wait):
        for spec in session.runs:
            corpus = open_corpus(corpus_dir, spec.model.seq_length, spec.training.global_batch)
            check_corpus(spec, corpus.manifest)
            check_loop(spec)
        job = slurm.allocation()
        check_machine(session.runs[0], job)  # before any earlier record goes
        if job is None:
            check_quiet(session.timing.foreign_load)
        for spec in session.runs:
            shutil.rmtree(run_folder(folder, spec), ignore_errors=True)
            files.write_json(run_folder(folder, spec) / "spec.json", spec.model_dump(mode="json"))
        session.write(folder)
        _launch(session.runs[0], folder, corpus_dir)


@contextmanager
def _own(run_dir: Path, wait: bool) -> Iterator[None]:
    """A folder that no other process launches into while the body runs, and that keeps what a `UserError` says."""
    taken = f"another process trains into {run_dir}; wait for it or stop it"
    with files.only_process(run_dir / "lock", taken, wait and slurm.allocation() is None):
        said = run_dir / LOG
        said.unlink(missing_ok=True)
        try:
            yield
        except UserError as error:
            files.write_text(said, f"{error}\n")
            raise


def _launch(spec: RunSpec, run_dir: Path, corpus_dir: Path) -> None:
    """Run all processes to the end, in a folder that is this process's own; see how that was."""
    status = run_dir / "status.json"
    job = slurm.allocation()
    check_machine(spec, job)
    begun = saved_step(run_dir)
    status.unlink(missing_ok=True)
    (run_dir / stopping.STOP).unlink(missing_ok=True)
    shutil.rmtree(run_dir / ERRORS, ignore_errors=True)
    files.write_json(run_dir / "spec.json", spec.model_dump(mode="json"))
    os.environ["EDGC_LAUNCHED_AT"] = str(time.time())
    several = spec.cluster.nodes > 1
    with _supervised(spec, run_dir, job):
        if several:
            assert job is not None  # checked
            failures, otherwise = _run_nodes(spec, run_dir, corpus_dir, job)
        else:
            failures, otherwise = run_node(spec, run_dir, corpus_dir), ""
    reason = stopping.requested(run_dir)
    if failures or otherwise:
        _report_failure(spec, run_dir, failures, otherwise, job if several and reason is None else None)
    elif (ended := files.read_json(status)["status"]) != "done":
        _stopped(run_dir, ended, job, saved_step(run_dir) > begun)


@contextmanager
def _supervised(spec: RunSpec, run_dir: Path, job: Allocation | None) -> Iterator[None]:
    """While the body runs: signs of life, and requests to stop."""
    from torch.distributed.elastic.multiprocessing import SignalException

    def cancel() -> None:  # at once: what follows may be SIGKILL
        write_status(spec, run_dir, "cancelled", "stopped by a signal")

    try:
        with watching(run_dir, job, spec.cluster.schedule.checkpoint_seconds), stopping.on_signals(run_dir, cancel):
            yield
    except (SignalException, KeyboardInterrupt):  # its processes are gone by now
        write_status(spec, run_dir, "cancelled", "stopped by a signal")
        raise _interrupted(run_dir) from None


def _run_nodes(spec: RunSpec, run_dir: Path, corpus_dir: Path, job: Allocation) -> tuple[list[Failure], str]:
    """Run an agent on every node to the end. The processes that failed, and what srun said if it failed."""
    words = (run_dir, corpus_dir, job.endpoint(spec.cluster, spec.run_id))
    command = [sys.executable, "-m", "edgc.suite.training.agent", *map(str, words)]
    step = subprocess.Popen(
        job.srun(spec.cluster, *command), env=slurm.environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = step.communicate()
    except KeyboardInterrupt:
        step.terminate()
        step.communicate()
        raise
    failures = read_failures(run_dir)
    return failures, f"srun ended with exit code {step.returncode}:\n{said[-2000:]}" if step.returncode else ""


def _report_failure(
    spec: RunSpec, run_dir: Path, failures: list[Failure], otherwise: str, job: Allocation | None
) -> None:
    """Raise what a failed run says. In a job one of whose nodes is lost, SLURM is given the time to find that out."""
    message = explain(run_dir, failures, otherwise)
    if any(failure.exit_code == EXIT_DIVERGED for failure in failures):
        raise Diverged(message)
    if job is not None and not job.answers():
        print(f"{message}\na node does not answer: waiting for SLURM to queue job {job.job_id} again", file=sys.stderr)
        time.sleep(slurm.REQUEUE_SECONDS)
    if stopping.requested(run_dir) == "cancelled":
        write_status(spec, run_dir, "cancelled", "stopped by a signal")
        raise _interrupted(run_dir)
    write_status(spec, run_dir, "failed", message)
    raise UserError(message)


def _stopped(run_dir: Path, how: str, job: Allocation | None, progressed: bool) -> None:
    """Raise what a run says that saved its state and stopped; out of time, its job goes back into the queue."""
    if how != "timeout":
        raise _interrupted(run_dir)
    if job is not None and Session.read(run_dir):
        raise OutOfTime(
            f"{run_dir}: stopped, its time was nearly up, and a timing is made at one go; raise schedule.time_minutes "
            "in the cluster's file, or lower timing.rounds"
        )
    if job is None or not progressed:
        what = "it was asked to" if job is None else "its time was nearly up before it finished a step"
        raise OutOfTime(f"{run_dir}: stopped, {what}; {started_again(run_dir)}")
    print(f"{run_dir}: time is nearly up: its state is saved, and job {job.job_id} goes back to the queue", flush=True)
    job.requeue()


def _interrupted(run_dir: Path) -> Interrupted:
    return Interrupted(f"{run_dir}: stopped by a signal; {started_again(run_dir)}")


def write_status(spec: RunSpec, run_dir: Path, status: str, message: str) -> None:
    """How a run ended that could not say so itself."""
    steps = files.read_jsonl(run_dir / "steps.jsonl")
    record = {"status": status, "step": steps[-1]["step"] if steps else 0, "iterations": spec.training.iterations}
    files.write_json(run_dir / "status.json", record | {"message": message})


@contextmanager
def watching(run_dir: Path, job: Allocation | None, checkpoint_seconds: float) -> Iterator[None]:
    """While the body runs, touch job.json, and ask the run to stop `checkpoint_seconds` before the job's time is up."""
    path, over = run_dir / JOB, threading.Event()
    restarts = int(os.environ.get("SLURM_RESTART_COUNT", 0))
    files.write_json(path, {"slurm_job_id": job and job.job_id, "started": time.time(), "restarts": restarts})
    asked_at = job.ends - checkpoint_seconds if job and job.ends else float("inf")

    def watch() -> None:
        nonlocal asked_at
        while not over.wait(min(BEAT_SECONDS, max(0.0, asked_at - time.time()))):
            with contextlib.suppress(OSError):  # of a shared file system that is slow to answer
                path.touch()
            if time.time() >= asked_at:
                stopping.request(run_dir, "timeout")
                asked_at = float("inf")  # once is enough

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
