"""lm-eval tasks on the data that is here: a local mirror, the hub, or the corpus's held-out text.

A stock task keeps its own prompt, choices and metrics: a definition that `include`s lm-eval's changes only
where the examples come from. So its numbers are those of the stock task on the same examples. Snakemake evaluates
by what a run is or would be evaluated on (`evaluated_on`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgc.core.base.errors import UserError
from edgc.core.base.files import read_json, read_jsonl, write_json, write_jsonl, write_text
from edgc.suite.config import Task
from edgc.suite.training.evaluation import cloze
from edgc.suite.training.evaluation.examples import Row, first_misfit, misfit, read_rows

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask

MIRROR = "EDGC_EVAL_DATA"
SCORED = ("multiple_choice", "loglikelihood")


class NoData(Exception):
    """A task's examples are not here; the text says why."""


def load_tasks(
    tasks: Sequence[Task], corpus: Path, scratch: Path
) -> tuple[dict[str, ConfigurableTask], dict[str, str]]:
    """Load what can be loaded. Returns lm-eval's tasks by name, and why the others cannot run by name.

    `corpus` is a prepared corpus folder; definitions and converted data go to `scratch`. The hub is asked
    only for tasks without a local file, and a hub that does not answer costs seconds. Raises `UserError` for
    what is wrong rather than missing: a mirror that does not exist, an unknown stock task, one that generates
    text, a metric that the task does not have.
    """
    stock = stock_definitions(task.lm_eval for task in tasks if task.lm_eval)
    unknown = [
        f"task {t.name}: lm_eval = {t.lm_eval!r} is no task of lm-eval"
        for t in tasks
        if t.lm_eval and t.lm_eval not in stock
    ]
    if unknown:
        raise UserError("\n".join(unknown))
    on_hub = [task for task in tasks if task.lm_eval and local_file(task) is None]
    reachable = bool(on_hub) and hub_reachable()
    loaded: dict[str, ConfigurableTask] = {}
    missing: dict[str, str] = {}
    with contextlib.nullcontext() if reachable else offline():
        for task in tasks:
            try:
                if task.lm_eval is None:
                    loaded[task.name] = _generated(task, corpus, scratch)
                elif task in on_hub:
                    loaded[task.name] = _from_hub(task, stock[task.lm_eval], scratch, reachable)
                else:
                    loaded[task.name] = _from_mirror(task, stock[task.lm_eval], scratch)
            except NoData as reason:
                missing[task.name] = str(reason)
    for task in tasks:
        if task.name in loaded:
            _check(task, loaded[task.name])
            here = local_file(task)
            if problem := misfit(loaded[task.name], read_rows(here) if here else []):
                missing[task.name] = f"{f'{here.name} in {MIRROR}' if here else 'its data'}, {problem}"
                del loaded[task.name]
    return loaded, missing


def stock_definitions(names: Iterable[str]) -> dict[str, Path]:
    """The YAML files in lm-eval that define these tasks; unknown names are left out.

    Read as text: lm-eval's own index of its 14 000 files takes several seconds, this a fraction of one.
    """
    import lm_eval

    wanted = set(names)
    if not wanted:
        return {}
    pattern = re.compile(rf"^task:\s*[\"']?({'|'.join(map(re.escape, wanted))})[\"']?\s*$", re.MULTILINE)
    found: dict[str, Path] = {}
    for path in sorted((Path(lm_eval.__path__[0]) / "tasks").rglob("*.yaml")):
        if match := pattern.search(path.read_text(encoding="utf-8")):
            found.setdefault(match[1], path.resolve())
    return found


def _generated(task: Task, corpus: Path, scratch: Path) -> ConfigurableTask:
    source = corpus / "validation.jsonl"
    if not source.is_file():
        raise UserError(f"task {task.name}: no {source}; prepare the corpus first")
    examples = cloze.questions([document["text"] for document in read_jsonl(source)])
    if len(examples) < cloze.MINIMUM:
        raise NoData(
            f"the held-out documents give {len(examples)} questions, at least {cloze.MINIMUM} are needed: "
            "hold out more text (corpus.validation_fraction), in documents of over "
            f"{cloze.CONTEXT + cloze.CONTINUATION} characters"
        )
    data = corpus / "tasks" / f"{task.name}.jsonl"
    write_jsonl(data, examples)
    return _load(task.name, cloze.DEFINITION | _on_file(data, scratch), scratch)


def _from_mirror(task: Task, stock: Path, scratch: Path) -> ConfigurableTask:
    data = local_file(task)
    assert data is not None
    not_fitting = f"{task.local_file} in {MIRROR} does not fit the task"

    def on(some: Sequence[Row]) -> ConfigurableTask:
        copy = scratch / f"{task.name}-{len(some)}.jsonl"
        write_text(copy, "".join(json.dumps(row) + "\n" for row in some))
        return _load(task.name, {"include": str(stock)} | _on_file(copy, scratch), scratch)

    def fits(some: Sequence[Row]) -> bool:
        with contextlib.suppress(Exception):
            on(some)
            return True
        return False

    try:
        rows = read_rows(data)
    except (OSError, ValueError) as error:
        raise NoData(f"{not_fitting}: {_without_paths(str(error))}") from None
    try:
        return on(rows)
    except Exception as error:  # whatever reading rows and filling the prompt with them may raise
        raise NoData(f"{not_fitting}: {first_misfit(rows, fits)} ({cause(error)})") from None


def _from_hub(task: Task, stock: Path, scratch: Path, reachable: bool) -> ConfigurableTask:
    try:
        return _load(task.name, {"include": str(stock)}, scratch)
    except Exception as error:  # whatever a data set that is not there may raise
        absent = f"no {task.local_file} in {MIRROR}, and " if task.local_file else ""
        why = f"does not give it: {cause(error)}" if reachable else "cannot be reached or HF_HUB_OFFLINE is set"
        raise NoData(f"{absent}the Hugging Face hub {why}") from None


def _on_file(data: Path, scratch: Path) -> dict[str, Any]:
    """What a task's definition says to be on `data`: lm-eval evaluates on the test split if there is one."""
    return {
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {"test": str(data.resolve())}, "cache_dir": str(scratch / "cache")},
        "training_split": None,
        "validation_split": None,
        "test_split": "test",
        "fewshot_split": None,
        "fewshot_config": None,
    }


def _load(name: str, definition: dict[str, Any], scratch: Path) -> ConfigurableTask:
    from lm_eval.tasks import TaskManager

    write_json(scratch / f"{name}.yaml", {"task": name, "num_fewshot": 0, **definition})  # JSON is YAML
    return TaskManager(include_path=str(scratch), include_defaults=False).load([name])["tasks"][name]  # type: ignore[return-value]


def _check(task: Task, loaded: ConfigurableTask) -> None:
    if loaded.OUTPUT_TYPE not in SCORED:
        raise UserError(
            f"task {task.name}: lm_eval = {task.lm_eval!r} is of type {loaded.OUTPUT_TYPE}; "
            f"a small model can only be asked for probabilities: {', '.join(SCORED)}"
        )
    if task.metric not in (has := loaded.aggregation()):
        raise UserError(f"task {task.name}: metric = {task.metric!r}, but it has {', '.join(has)}")


def cause(error: BaseException) -> str:
    """What went wrong at the bottom, in a line, without a path of this machine."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _without_paths(f"{type(error).__name__}: {error}")


def _without_paths(text: str) -> str:
    return re.sub(r"(?<![\w:/])/[\w./-]+/", "", " ".join(text.split()))[:200]


def hub_reachable(seconds: float = 5.0) -> bool:
    """Whether the hub answers within `seconds`. False at once in offline mode (HF_HUB_OFFLINE=1)."""
    from datasets import config
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or config.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()

    def ask() -> None:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=seconds):
            answered.set()

    asking = threading.Thread(target=ask, daemon=True)  # a name look-up has no time limit of its own
    asking.start()
    asking.join(seconds)
    return answered.is_set()


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Hub clients use what is cached and fail at once on the rest. The settings are put back on leaving."""
    from datasets import config
    from huggingface_hub import constants

    # the environment variables are read once, on import: too early for a process that has imported them
    before = constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = before


def local_file(task: Task) -> Path | None:
    """The task's file in the local mirror, if it is there. Raises `UserError` if the mirror itself is not."""
    mirror = os.environ.get(MIRROR)
    if not mirror or task.local_file is None:
        return None
    if not Path(mirror).is_dir():
        raise UserError(f"{MIRROR} = {mirror!r} is no folder; name one with JSONL files, or unset it")
    path = Path(mirror, task.local_file)
    return path if path.is_file() else None


def local_data(task: Task) -> str | None:
    """Digest of the task's file in the local mirror; None: it is not there, or the mirror itself is not."""
    try:
        path = local_file(task)
    except UserError:
        path = None
    if path is None:
        return None
    about = path.stat()
    return _digest(path, about.st_mtime_ns, about.st_size)


def evaluated_on(run: Path, tasks: Iterable[Task]) -> dict[str, str]:
    """By task: digest of the local data that the run in folder `run` was evaluated on, or would be if that began now.

    What is finished is about the data it has seen, whatever became of that: it makes a difference only if data comes
    for a task that was not run, because there was none or none that fitted. zero_shot.json keeps what is returned
    here, so that it is the same after an evaluation as before: a difference is a reason to evaluate.
    """
    written, ended = run / "zero_shot.json", run / "status.json"
    before = read_json(written) if written.is_file() else {"tasks": {}}
    ended_well = not ended.is_file() or read_json(ended)["status"] == "done"
    then = before.get("data", {})
    now = {}
    for task in tasks:
        record = before["tasks"].get(task.name)
        awaited = record is None or (record["status"] != "done" and ended_well)
        now[task.name] = (local_data(task) if awaited else None) or then.get(task.name)
    return {name: digest for name, digest in now.items() if digest}


@cache
def _digest(path: Path, changed_ns: int, size: int) -> str:
    """Sixteen hexadecimal digits of the SHA-256; read once for all runs."""
    return sha256(path.read_bytes()).hexdigest()[:16]
