"""`edgc evaluate`: the exported model of a finished run through lm-eval, into zero_shot.json."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from edgc.core.base.errors import UserError
from edgc.core.base.files import read_json, write_json
from edgc.suite.config import Task
from edgc.suite.training.evaluation.tasks import cause, evaluated_on

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask

    from edgc.suite.training.evaluation.scorer import Scorer

EXPORT = ("config.json", "model.safetensors", "tokenizer.json")
BOOTSTRAP = 1000  # resamples, for the metrics without a formula for their standard error


def evaluate_run(run: Path, tasks: Sequence[Task], corpus: Path, limit: int | None = None) -> None:
    """Evaluate the run in folder `run` on `tasks`, without examples in the prompt; write its zero_shot.json.

    `corpus` is the prepared corpus folder; at most `limit` examples of a task are used, the first ones. Stock
    tasks are read from EDGC_EVAL_DATA or the hub; one whose data is not there is reported "not run" with the
    reason, and so is every task of a run that did not end well. Runs in fp32, on the GPU if there is one,
    else on CPU with torch's number of threads (OMP_NUM_THREADS). Raises `UserError` if the run has not ended,
    if its export is not whole, and as `load_tasks` does.

    A task's record: status, metric, value, stderr, n (examples), reason; of those that ran also version
    (lm-eval's, of the task), chance (the metric's expected value when guessing; null: unknown) and truncated
    (share of the requests that were longer than the model's window and lost their beginning) and right (a 1 or 0 per
    example, in the data's order, as one string; null: the metric is no count of right answers). A task whose data has
    gone since it was evaluated keeps its record, with the lm_eval of then.
    """
    ended = run / "status.json"
    if not ended.is_file():
        raise UserError(f"run {run.name}: no status.json in its folder; train it first")
    status, data = read_json(ended)["status"], evaluated_on(run, tasks)
    if not tasks:
        records = {}
    elif status == "done":
        records = _evaluate(run / "export", tasks, corpus, limit)
    else:
        records = {task.name: _not_run(task, f"run {status}") for task in tasks}
    for name, record in _finished_before(run, tasks, limit).items():
        if status == "done" and records[name]["status"] != "done":
            records[name] = record
    about = {"lm_eval": version("lm_eval"), "limit": limit, "data": data}
    write_json(run / "zero_shot.json", about | {"tasks": records})


def _finished_before(run: Path, tasks: Sequence[Task], limit: int | None) -> dict[str, dict[str, Any]]:
    """Records that the run has of these very evaluations, by task; none if it was trained again since."""
    written = run / "zero_shot.json"
    if not written.is_file() or written.stat().st_mtime_ns < (run / "status.json").stat().st_mtime_ns:
        return {}
    earlier = read_json(written)
    wanted = {task.name: ("done", task.metric) for task in tasks if earlier["limit"] == limit}
    return {
        name: {"lm_eval": earlier["lm_eval"]} | record
        for name, record in earlier["tasks"].items()
        if (record["status"], record["metric"]) == wanted.get(name)
    }


def _evaluate(export: Path, tasks: Sequence[Task], corpus: Path, limit: int | None) -> dict[str, Any]:
    absent = [name for name in EXPORT if not (export / name).is_file()]
    if absent:
        raise UserError(
            f"run {export.parent.name}: export lacks {', '.join(absent)}, which a mixture of experts has "
            "not; of another model, train it again"
        )
    with tempfile.TemporaryDirectory(prefix="edgc-tasks-") as scratch, _quietly():
        from edgc.suite.training.evaluation.tasks import load_tasks

        loaded, missing = load_tasks(tasks, corpus, Path(scratch))
        scorer = _load_model(export) if loaded else None
        return {
            task.name: _not_run(task, missing[task.name])
            if scorer is None or task.name in missing
            else _scored(task, loaded[task.name], scorer, limit)
            for task in tasks
        }


def _scored(task: Task, lm_task: ConfigurableTask, scorer: Scorer, limit: int | None) -> dict[str, Any]:
    """The task's record. A task that cannot be scored is "not run": the others are no worse for it."""
    try:
        record = _run(task, lm_task, scorer, limit)
    except Exception as error:  # whatever a task of lm-eval's 14 000 may raise on some example
        return _not_run(task, f"lm-eval failed on it: {cause(error)}")
    if not isfinite(record["value"]):
        return _not_run(task, f"its {task.metric} is {record['value']}, which is no score")
    return record


def _load_model(export: Path) -> Scorer:
    import torch
    from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

    from edgc.suite.training.evaluation.scorer import Scorer

    tokenizer = PreTrainedTokenizerFast.from_pretrained(export, local_files_only=True)
    # fp32: the differences between methods are smaller than what half precision adds
    model = GPT2LMHeadModel.from_pretrained(export, local_files_only=True, dtype=torch.float32)
    if len(tokenizer) > model.config.vocab_size:
        raise UserError(
            f"run {export.parent.name}: export has a tokenizer of {len(tokenizer)} tokens "
            f"and a model of {model.config.vocab_size}; train it again"
        )
    return Scorer(model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer)  # type: ignore[arg-type]


def _run(task: Task, lm_task: ConfigurableTask, scorer: Scorer, limit: int | None) -> dict[str, Any]:
    # not simple_evaluate: each call describes the machine with pip and lscpu, which takes seconds
    from lm_eval.evaluator import evaluate

    requests, truncated = scorer.requests, scorer.truncated
    results: Any = evaluate(scorer, {"tasks": {task.name: lm_task}}, limit=limit, bootstrap_iters=BOOTSTRAP)
    found, n = results["results"][task.name], results["n-samples"][task.name]["effective"]
    stderr = found[f"{task.metric}_stderr,none"]
    samples = sorted(results["samples"][task.name], key=lambda sample: sample["doc_id"])
    scores = [sample[task.metric] for sample in samples]
    return {
        "status": "done",
        "metric": task.metric,
        "value": found[f"{task.metric},none"],
        "stderr": None if stderr == "N/A" else stderr,
        "n": n,
        "reason": None,
        "version": lm_task.VERSION,
        "right": "".join(f"{score:.0f}" for score in scores) if {*scores} <= {0, 1} else None,
        "chance": _chance(task, lm_task, n),
        "truncated": (scorer.truncated - truncated) / (scorer.requests - requests),
    }


def _chance(task: Task, lm_task: ConfigurableTask, n: int) -> float | None:
    """Expected accuracy of a guess among the choices of the first `n` examples."""
    if lm_task.OUTPUT_TYPE != "multiple_choice" or not task.metric.startswith("acc"):
        return None
    return fmean(1 / len(lm_task.doc_to_choice(doc)) for doc in islice(lm_task.eval_docs, n))


def _not_run(task: Task, reason: str) -> dict[str, Any]:
    return {
        "status": "not run",
        "metric": task.metric,
        "value": None,
        "stderr": None,
        "n": 0,
        "reason": reason,
    }


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Swallow the libraries' progress bars and notes, and keep lm-eval from starting a process per core."""
    logger = logging.getLogger("lm_eval")
    level, before = logger.level, os.environ.get("DISABLE_MULTIPROC")
    logger.setLevel(logging.ERROR)
    os.environ["DISABLE_MULTIPROC"] = "1"
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
        if before is None:
            del os.environ["DISABLE_MULTIPROC"]
        else:
            os.environ["DISABLE_MULTIPROC"] = before
