"""A look at an experiment whose seeds are added until verdicts are decided: which are open, and what is run next."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.report.collect import NOT_OVER, gather, pooled_frames
from edgc.report.frames import Frames
from edgc.report.planned_runs import asked, look_path
from edgc.report.study import Line, baseline_among, lines
from edgc.report.verdicts import DECIDED, OPEN, beaten_by, gaps_to, judge
from edgc.suite.config import CONFIGS, Experiment, UntilDecided


def look(experiment: Experiment, seeds: int, results: Path, configs: Path = CONFIGS) -> Path:
    """Judge the runs of the first `seeds` seeds and write down which runs of the next seed they ask for.

    Those are the methods whose verdict is open, and the baseline, which they are paired with; not those that are
    beaten, where seeds spare them. A method that was spared once stays so. Returns the file.
    Raises `UserError` if the experiment's seeds are given, there is no such look, or a run has not ended: a look that
    is written stays.
    """
    until = experiment.until_decided
    if until is None:
        raise UserError(f"experiment {experiment.name}: its seeds are given, so no look adds any")
    if not until.first <= seeds < until.most:
        raise UserError(f"seeds {seeds}: experiment {experiment.name} has looks at {until.first} to {until.most - 1}")
    begun = [spec for spec in asked(experiment, results, configs).specs if spec.seed <= seeds]
    frames = pooled_frames(gather(begun, results / experiment.name / "runs"))
    if open_runs := frames.runs.loc[frames.runs["status"].isin(NOT_OVER), "run_id"].tolist():
        raise UserError(f"{len(open_runs)} of {len(begun)} runs have not ended, such as {open_runs[0]}; run them first")
    verdicts: dict[str, dict[str, list[str]]] = {}
    for line in lines(frames.runs):
        found = _judged(line, frames, experiment, until, seeds)
        verdicts.setdefault(line.model, {}).setdefault(line.method, []).append(found)
    base = experiment.judgement.baseline
    wanted = {(model, method) for model, found in verdicts.items() for method in _next(found, base)}
    every = experiment.runs_at_most(configs)
    added = [s.run_id for s in every if s.seed == seeds + 1 and (s.model.name, s.method.name) in wanted]
    path = look_path(experiment.name, seeds, results)
    files.write_json(path, {"seeds": seeds, "verdicts": verdicts, "runs": added})
    return path


def _judged(line: Line, frames: Frames, experiment: Experiment, until: UntilDecided, seeds: int) -> str:
    """The line's verdict; of an open one that gets no more seeds, why."""
    baseline = baseline_among(line, frames.runs, experiment.judgement.baseline)
    gaps = gaps_to(line, baseline)
    found = judge(line, gaps, experiment.judgement.margin_nats, baseline, until)
    if found != OPEN:
        return found
    if gaps.empty:
        return "no pair"  # more seeds would not help either
    if line.runs["seed"].max() < seeds:
        return "spared before"
    better = beaten_by(line, frames, until)
    return f"beaten by {better.method}" if better else OPEN


def _next(verdicts: dict[str, list[str]], baseline: str) -> Collection[str]:
    """Methods of a model that get another seed. Verdicts: one for each kind of hardware, and one decided will do."""
    open_ = [name for name, found in verdicts.items() if OPEN in found and not {*found} & DECIDED]
    return [*open_, baseline] if open_ else []
