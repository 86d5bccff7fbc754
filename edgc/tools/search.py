"""`edgc search`: settings of a method with the least loss within a number of bytes, tried by optuna's sampler.

A trial is a run of an experiment with a few settings changed. All are kept, whatever came of them: what is chosen here
is confirmed by an experiment on seeds and sizes that no trial saw.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

import optuna
import pandas as pd
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState
from pydantic import Field, PositiveInt

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.core.settings.reading import Named, load
from edgc.report import manifests
from edgc.report.publish import check
from edgc.report.regime import regime_of
from edgc.report.render import cell, loss, markdown
from edgc.suite.config import RunSpec, load_experiment
from edgc.suite.training.data.corpus_files import corpus_id
from edgc.suite.training.launch import launch

TRIALS = "trials.parquet"  #: in a search's folder: a row a trial
ASKED = 10  #: suggestions for each run that is wanted; after these a search gives up
REPEATED = 2  #: suggestions for each run that was made, above which they are drawn at random: few are new
BEST = 10  #: trials that are shown in words
ENDED = (TrialState.COMPLETE, TrialState.FAIL)  #: states of trials that were run


class Search(Named):
    """What is tried (configs/searches/)."""

    folder: ClassVar[str] = "searches"

    title: str = Field(description="What it is")
    experiment: str = Field(description="File in configs/experiments: its first seed's run of `method` is changed")
    method: str = Field(description="One of its methods")
    trials: PositiveInt = Field(description="Runs; of equal settings there is one")
    share: float = Field(gt=0, description="Most bytes, as a share of dense fp32's; whoever sends more comes last")
    seed: int = Field(1, description="Of the sampler")
    space: dict[str, tuple[Any, ...]] = Field(
        description="By path in a run's settings, such as method.policy.rank or training.lr: values that are tried, "
        "numbers in rising order; training.min_lr keeps its share of training.lr. A value may be a group of settings"
    )

    def spec(self, base: RunSpec, values: Mapping[str, Any]) -> RunSpec:
        """A run with these settings. Raises `UserError` if they exclude each other."""
        changed: dict[str, Any] = {}
        for path, value in values.items():
            for group in reversed(path.split(".")):
                value = {group: value}
            changed = merge(changed, value)
        if lr := changed.get("training", {}).get("lr"):
            changed["training"].setdefault("min_lr", base.training.min_lr / base.training.lr * lr)
        spec = validate(RunSpec, merge(base.model_dump(), changed), f"search {self.name}, {values}")
        if spec.parallel.data == 1:
            raise UserError(
                f"search {self.name}, experiment {self.experiment}: parallel.data = 1: nothing is exchanged "
                "whose bytes could be compared; use at least 2"
            )
        return spec


def load_search(name: str) -> tuple[Search, RunSpec]:
    """A search and the run that it changes. Raises `UserError` if it names what is not there."""
    search = load(Search, name)
    runs: dict[str, RunSpec] = {}
    for spec in load_experiment(search.experiment).runs():
        runs.setdefault(spec.method.name, spec)
    if search.method not in runs:
        raise UserError(f"search {name}: method {search.method}: experiment {search.experiment} has {', '.join(runs)}")
    base = runs[search.method]
    for path, values in search.space.items():  # a path that is no setting would be refused in every trial
        if not values:
            raise UserError(f"search {name}: space.{path}: give at least one value")
        search.spec(base, {path: values[0]})
    return search, base


def run(name: str, cores: int, results: Path) -> Path:
    """Try until there are so many trials, as many at once as `cores`; go on where an earlier start was stopped.

    Returns the file of all trials.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search, base = load_search(name)
    folder, corpus = results / "searches" / name, results / "corpora" / corpus_id(base.corpus)
    folder.mkdir(parents=True, exist_ok=True)
    if not (corpus / "manifest.json").is_file():
        prepare = [sys.executable, "-m", "edgc", "prepare", base.corpus.name, "--out", str(corpus)]
        subprocess.run(prepare, check=True)
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
    before = len(study.get_trials(deepcopy=False))  # a later start draws other numbers, or it would suggest them again
    startup = search.trials // 4
    best = optuna.samplers.TPESampler(seed=search.seed + before, multivariate=True, n_startup_trials=startup)
    any_of = optuna.samplers.RandomSampler(seed=search.seed + 1_000_003 + before)
    with files.only_process(folder / "lock", f"another process works on search {name}; wait for it or stop it"):
        for left in study.get_trials(states=[TrialState.RUNNING]):  # by an earlier start: its run goes on
            study.tell(left.number, state=TrialState.PRUNED)
            study.enqueue_trial(left.params)
        with ThreadPoolExecutor(cores) as pool:
            running: set[Any] = set()
            while running or ended_of(study) < search.trials:
                asked = len(study.get_trials(deepcopy=False))
                if asked > ASKED * search.trials:
                    raise UserError(
                        f"search {name}: {ended_of(study)} of {search.trials} trials were run, and nearly all that is "
                        f"suggested now was run already or excludes itself (see {folder / TRIALS}): lower trials, or "
                        "give space more values"
                    )
                study.sampler = any_of if asked > REPEATED * (ended_of(study) + cores) else best
                while len(running) < min(cores, search.trials - ended_of(study)):
                    running.add(pool.submit(_try, study, study.ask(), search, base, folder, corpus))
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for each in ended:
                    each.result()
                write(study, folder / TRIALS)
    return folder / TRIALS


def ended_of(study: optuna.Study) -> int:
    """How many runs it made: equal settings are one."""
    return len({trial.user_attrs["run_id"] for trial in study.get_trials(deepcopy=False, states=ENDED)})


def _try(study: optuna.Study, trial: Trial, search: Search, base: RunSpec, folder: Path, corpus: Path) -> None:
    """Train with what the sampler suggests, and tell it the loss, and by how much bytes are beyond the share."""
    values = {path: values[_suggested(trial, path, values)] for path, values in search.space.items()}
    trial.set_user_attr("settings", values)
    try:
        spec = search.spec(base, values)
    except UserError as error:
        trial.set_user_attr("message", str(error))
        study.tell(trial, state=TrialState.PRUNED)
        return
    out = folder / "runs" / spec.run_id
    trial.set_user_attr("run_id", spec.run_id)
    files.write_json(folder / "specs" / f"{spec.run_id}.json", spec.model_dump(mode="json"))
    _train(folder / "specs" / f"{spec.run_id}.json", out, corpus)
    if not (out / "status.json").is_file():
        raise UserError(f"search {search.name}: run {spec.run_id} did not train; it said why above, and in {out}")
    status = files.read_json(out / "status.json")
    if status["status"] in ("cancelled", "timeout", "failed"):  # the next start asks for the trial again
        raise UserError(f"search {search.name}: run {spec.run_id}: {status['status']}; start again, and it goes on")
    if status["status"] != "done":
        trial.set_user_attr("message", status["status"])
        study.tell(trial, state=TrialState.FAIL)
        return
    steps = files.read_jsonl(out / "steps.jsonl")
    sent, dense = (sum(step[of] for step in steps) for of in ("wire_bytes", "dense_bytes"))
    ranks = spec.parallel.data
    share = sent / (dense * 2 * (ranks - 1) / ranks)
    trial.set_user_attr("bytes", share)
    trial.set_constraint("bytes", share - search.share)
    study.tell(trial, status["validation_loss"])


def _suggested(trial: Trial, path: str, values: Sequence[Any]) -> int:
    """The place of the value to try; numbers are near to each other in their order."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return trial.suggest_int(path, 0, len(values) - 1)
    return int(trial.suggest_categorical(path, [*map(str, range(len(values)))]))


def _train(spec: Path, out: Path, corpus: Path) -> None:
    """In a process of its own, which may diverge."""
    subprocess.run([sys.executable, "-m", __name__, str(spec), str(out), str(corpus)], check=False)


def write(study: optuna.Study, path: Path) -> None:
    """All trials as a table: number, state, loss (nats), bytes (share of dense fp32's), run_id, message, settings."""
    rows = [_row(trial) for trial in study.trials if "settings" in trial.user_attrs]
    with files.atomic_open(path, "wb") as stream:
        pd.DataFrame(rows).to_parquet(stream, index=False)


def _row(trial: FrozenTrial) -> dict[str, Any]:
    known = {key: trial.user_attrs.get(key) for key in ("bytes", "run_id", "message")}
    if trial.state == TrialState.PRUNED and known["run_id"]:
        known["message"] = "stopped, and tried again"
    settings = {path: str(value) for path, value in trial.user_attrs.get("settings", {}).items()}
    return {"trial": trial.number, "state": trial.state.name.lower(), "loss": trial.value} | known | settings


def publish(name: str, results: Path) -> Path:
    """Replace `results/published/searches/<name>/` by all trials, the best of them in words, and the runs' manifests.

    Raises `UserError` if trials are missing, or a run was made from code that is in no commit.
    """
    search, base = load_search(name)
    folder, target = results / "searches" / name, results / "published" / "searches" / name
    there = (folder / TRIALS).is_file()
    trials = pd.read_parquet(folder / TRIALS) if there else pd.DataFrame(columns=["state", "run_id"])
    run_ids = sorted({*trials.loc[trials["state"].isin([state.name.lower() for state in ENDED]), "run_id"]})
    if len(run_ids) < search.trials:
        raise UserError(
            f"search {name}: {len(run_ids)} of {search.trials} trials were run; run `edgc search {name}` first"
        )
    runs = [folder / "runs" / run_id for run_id in run_ids]
    for each in runs:
        check(each)
    partial = target.with_name(f".partial-{name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shutil.copyfile(folder / TRIALS, partial / TRIALS)
    files.write_text(partial / "trials.md", _in_words(search, base, trials))
    manifests.write(partial / manifests.NAME, runs)
    shutil.rmtree(target, ignore_errors=True)
    return partial.rename(target)


def _in_words(search: Search, base: RunSpec, trials: pd.DataFrame) -> str:
    """How many were tried, of what, and the best of those within the share."""
    done = trials[trials["state"] == "complete"].drop_duplicates("run_id")
    within = done[done["bytes"] <= search.share].sort_values("loss")
    best, failed = within[:BEST], trials.loc[trials["state"] == "fail", "run_id"].nunique()
    refused = ((trials["state"] == "pruned") & trials["run_id"].isna()).sum()  # others were stopped, and tried again
    regime = regime_of(base)
    shown = pd.DataFrame(
        {"Trial": best["trial"], "Bytes (%)": (100 * best["bytes"]).map(cell), "Loss (nats)": best["loss"].map(loss)}
        | {
            path.partition(".")[2]: best[path].replace({str(value): _shown(value) for value in values})
            for path, values in search.space.items()
        }
    )
    return f"""# {search.title}

- {len(done) + failed} trials were run, {failed} of them did not end well. {refused} more were refused: their settings
  exclude each other. {len(within)} send at most {100 * search.share:.3g} % of dense fp32's bytes.
- Each is a run of method {search.method} in experiment {search.experiment} with other settings: {base.model.name},
  {regime.tokens_a_parameter:.2g} tokens a parameter, {base.training.iterations} steps, seed {base.seed}.
- What is chosen here is confirmed on other seeds by other experiments.

{markdown(shown)}
- **Shown**: the {BEST} of these with the least loss. All are in `{TRIALS}`, where settings that were suggested again
  have a row each time.
- **Bytes**: of gradients on the wire, in percent of dense fp32's in a ring.
- **Loss**: final, of validation.
"""


def _shown(value: Any) -> str:
    """A setting as a file has it; of a group: its settings."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={_shown(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else f"{value}"


if __name__ == "__main__":
    given, into, data = map(Path, sys.argv[1:])
    launch(RunSpec.model_validate(files.read_json(given)), into, data, wait=True)
