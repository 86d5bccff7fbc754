"""A look at an experiment whose seeds are added until verdicts are decided: which are open, and what is run next."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from edgc.analysis.asked import asked, look_path
from edgc.analysis.collect import outcomes
from edgc.analysis.study import baseline_among, lines
from edgc.analysis.tables import accuracy
from edgc.base import files
from edgc.base.errors import UserError
from edgc.config import CONFIGS, Experiment


def look(experiment: Experiment, seeds: int, results: Path, configs: Path = CONFIGS) -> Path:
    """Judge the runs of the first `seeds` seeds and write down which runs of the next seed they ask for.

    Those are the methods whose verdict is open, and the baseline, which they are paired with. Returns the file.
    Raises `UserError` if the experiment's seeds are given, or there is no such look.
    """
    until = experiment.until_decided
    if until is None:
        raise UserError(f"experiment {experiment.name}: its seeds are given, so no look adds any")
    if not until.first <= seeds < until.most:
        raise UserError(f"seeds {seeds}: experiment {experiment.name} has looks at {until.first} to {until.most - 1}")
    begun = [spec for spec in asked(experiment, results, configs).specs if spec.seed <= seeds]
    verdicts: dict[str, dict[str, list[str]]] = {}
    runs = outcomes(begun, results / experiment.name / "runs")
    judgement = experiment.judgement
    for line in lines(runs):
        baseline = baseline_among(line, runs, judgement.baseline)
        gaps = accuracy.gaps_to(line, baseline)
        found = accuracy.judge(line, gaps, judgement.margin_nats, baseline, until)
        hopeless = found == accuracy.OPEN and gaps.empty  # without one pair, more seeds would not help either
        verdicts.setdefault(line.model, {}).setdefault(line.method, []).append("no pair" if hopeless else found)
    wanted = {(model, method) for model, found in verdicts.items() for method in _next(found, judgement.baseline)}
    every = experiment.runs_at_most(configs)
    added = [s.run_id for s in every if s.seed == seeds + 1 and (s.model.name, s.method.name) in wanted]
    path = look_path(experiment.name, seeds, results)
    files.write_json(path, {"seeds": seeds, "verdicts": verdicts, "runs": added})
    return path


def _next(verdicts: dict[str, list[str]], baseline: str) -> Collection[str]:
    """Methods of a model that get another seed. Verdicts: one for each kind of hardware, and one decided will do."""
    open_ = [name for name, found in verdicts.items() if accuracy.OPEN in found and not {*found} & accuracy.DECIDED]
    return [*open_, baseline] if open_ else []
