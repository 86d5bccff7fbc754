"""What a table or figure is built from, and the few operations on it that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import wraps
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from edgc.report.collect import NOT_RUN, pooled_frames
from edgc.report.frames import Frames
from edgc.report.reference_values import Reference, load_reference
from edgc.report.regime import regime_of
from edgc.suite.config import CONFIGS, Experiment, RunSpec, load_experiment

#: Steps at the start of a run that no timing counts: they pay for first touches of memory, thread pools,
#: connections and, on GPUs, compilation and autotuning. Five is past all of them in every run seen so far.
WARMUP_STEPS = 5

#: What an experiment published of its losses: at the end, and at every evaluation.
ACCURACY, CURVES = "tables/accuracy.csv", "figures/loss_step.csv"

#: The band of a distribution that is printed beside its median.
LOW, HIGH = 0.2, 0.8

#: Layouts as they are read: by what is sharded, and by loop.
LAYOUTS = {
    "none": {"megatron": "megatron", "ddp": "DDP", "stacked": "one process"},
    "optimizer": {"megatron": "ZeRO-1"},
    "full": {"ddp": "FSDP2"},
}

#: The columns of `Line.identity`.
OF_LINE = ("model", "method", "title", "device", "status")


@dataclass(frozen=True)
class Study:
    """An experiment, its measurements, and the paper it is held against."""

    experiment: Experiment
    frames: Frames
    reference: Reference
    gaps: pd.DataFrame | None = None  #: tables `accuracy` that others published; see `judgement.gaps_from`
    rungs: Sequence[tuple[pd.DataFrame | None, pd.DataFrame]] = ()
    """Table `accuracy` and `regimes` of each of `judgement.rungs_from`; then None and `regimes` of this experiment"""
    curves: pd.DataFrame | None = None  #: figures `loss_step` that the experiments of `gaps` published
    configs: Path = CONFIGS  #: where numbers at scale are read from


def load_study(experiment: str, results: Path = Path("results"), configs: Path = CONFIGS) -> Study:
    """Read an experiment's collected frames (`edgc collect` wrote them) with what they are judged by."""
    frames = Frames.read(results / experiment / "frames")
    loaded = load_experiment(experiment, configs)
    published = results / "published"
    rungs = [
        (table, regimes(load_experiment(name, configs).runs(configs)))
        for name in loaded.judgement.rungs_from
        if (table := _published(published / name / ACCURACY)) is not None
    ]
    rungs += [(None, regimes(loaded.runs(configs)))] if loaded.judgement.rungs_from else []
    gaps, curves = (
        _published(*(published / name / what for name in loaded.judgement.gaps_from)) for what in (ACCURACY, CURVES)
    )
    return Study(loaded, frames, load_reference(configs=configs), gaps, rungs, curves, configs)


def regimes(specs: Iterable[RunSpec]) -> pd.DataFrame:
    """A row per model and method: its `Regime`, `shared_by` (replicas that share a global batch) and `lr`."""
    found = {(spec.model.name, spec.method.name): spec for spec in specs}
    rows = [
        {"model": model, "method": method, "shared_by": spec.parallel.data, "lr": spec.training.lr}
        | asdict(regime_of(spec))
        for (model, method), spec in found.items()
    ]
    return pd.DataFrame(rows)


def pooled(study: Study) -> Study:
    """The study with frames as `pooled_frames` gives them: of losses, where any model of CPU will do."""
    return replace(study, frames=pooled_frames(study.frames))


def _published(*paths: Path) -> pd.DataFrame | None:
    """The rows of all these tables that exist, in order; None if none does: nothing is published so far."""
    tables = [pd.read_csv(path) for path in paths if path.is_file()]
    return pd.concat(tables) if tables else None


class Layout(NamedTuple):
    """As a RunSpec has it: `loop` and `training.shard`."""

    loop: str
    shard: str

    @property
    def name(self) -> str:
        """As it is read."""
        return LAYOUTS[self.shard][self.loop]


@dataclass(frozen=True)
class Line:
    """One line of a table: the runs of a method on a model that were measured on one kind of hardware."""

    model: str
    method: str
    title: str
    device: str | None  #: None: nothing was measured
    runs: pd.DataFrame

    @property
    def measured(self) -> pd.DataFrame:
        """Runs that left measurements, however they ended."""
        return self.runs[self.runs["status"] != NOT_RUN]

    @property
    def done(self) -> pd.DataFrame:
        """Runs that ended as they should."""
        return self.runs[self.runs["status"] == "done"]

    @property
    def status(self) -> str:
        """`done` or, e.g., `2 done, 1 diverged`."""
        counts = self.runs["status"].value_counts()
        if len(counts) == 1:
            return str(counts.index[0])
        order = sorted(counts.index, key=lambda s: (s != "done", s))
        return ", ".join(f"{counts[s]} {s}" for s in order)

    @property
    def identity(self) -> dict[str, str | None]:
        """The columns every table begins with."""
        return {name: getattr(self, name) for name in OF_LINE}

    @property
    def layout(self) -> Layout:
        """How the ranks of its runs share a model. Settings that a run's records do not have are the defaults."""
        run = self.runs.iloc[0]
        loop, shard = run.get("spec.loop"), run.get("spec.training.shard")
        return Layout(loop if isinstance(loop, str) else "megatron", shard if isinstance(shard, str) else "none")

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of another frame that belong to this line."""
        return frame[frame["run_id"].isin(self.runs["run_id"])]

    def done_of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The same of its runs that ended as they should."""
        return frame[frame["run_id"].isin(self.done["run_id"])]

    def beside(self, runs: pd.DataFrame) -> Iterator[Line]:
        """The lines among these runs on the same model and hardware, itself among them."""
        return (other for other in lines(runs) if (other.model, other.device) == (self.model, self.device))


def lines(runs: pd.DataFrame) -> Iterator[Line]:
    """The lines of a table, in the experiment's order. Hardware is never mixed in one line."""
    for (model, method, title), group in runs.groupby(["model", "method", "title"], sort=False):
        devices = list(group["device"].dropna().unique())
        for number, device in enumerate(devices or [None]):
            own = group["device"] == device if device else group["device"].isna()
            rest = group["device"].isna() if number == 0 else False  # what was not run is told once
            yield Line(str(model), str(method), str(title), device, group[own | rest])


def pooled_lines(study: Study) -> Iterator[Line]:
    """Lines over all models of CPU: of what any of them will do for (see `pooled`)."""
    return lines(pooled(study).frames.runs)


def baseline_of(line: Line, study: Study) -> Line | None:
    """The baseline on the same model and hardware; None if it was not run there."""
    return baseline_among(line, study.frames.runs, study.experiment.judgement.baseline)


def baseline_among(line: Line, runs: pd.DataFrame, baseline: str) -> Line | None:
    """The line among these runs that is of the method `baseline`, on the same model and hardware as `line`."""
    return next((other for other in line.beside(runs) if other.method == baseline and line.device), None)


def by_line(row: Callable[[Line, Study], Mapping[str, object]]) -> Callable[[Study], pd.DataFrame]:
    """The `build` of a table with a row per line: its identity, and what the decorated function says of it."""

    @wraps(row)
    def build(study: Study) -> pd.DataFrame:
        return pd.DataFrame([{**line.identity, **row(line, study)} for line in lines(study.frames.runs)])

    return build


def framed(rows: Iterable[dict[str, object]], *more: str) -> pd.DataFrame:
    """Rows that begin with `Line.identity`, and have these columns even where there is none."""
    return pd.DataFrame([*rows], columns=[*OF_LINE, *more])


def steady(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps whose time counts: all but each run's first `WARMUP_STEPS`."""
    return steps[steps["step"] > WARMUP_STEPS]


def band(values: pd.Series) -> tuple[float, float, float]:
    """Median, 20 % and 80 % quantile; NaN without values."""
    if values.empty:
        return (np.nan, np.nan, np.nan)
    return (float(values.median()), float(values.quantile(LOW)), float(values.quantile(HIGH)))


def banded(key: str, values: pd.Series) -> dict[str, object]:
    """`band` in a row of a table: `<key>`, `<key>_p20`, `<key>_p80`."""
    return dict(zip((key, f"{key}_p20", f"{key}_p80"), band(values), strict=True))


def central(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps whose time lies within the 20–80 % band: their means are robust and, unlike medians, add up."""
    _, low, high = band(steps["t_step"])
    return steps[steps["t_step"].between(low, high)]


def lowest(among: Iterable[Line], seconds: Callable[[Line], float]) -> Line | None:
    """The line with the least of something, the first of equals; None where it is finite for none."""
    known = [(value, line) for line in among if np.isfinite(value := seconds(line))]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def reduction_percent(own: float, reference: float) -> float:
    """How much less `own` is than `reference`, in percent; NaN where the reference is 0 or missing."""
    return 100 * (1 - own / reference) if reference and np.isfinite(reference) else np.nan


def paired(own: pd.Series, reference: pd.Series) -> pd.DataFrame:
    """Two series by seed, only the seeds that both have: columns own, reference."""
    return pd.concat({"own": own, "reference": reference}, axis=1).dropna()


def paired_runs(line: Line, reference: Line | None, column: str) -> pd.DataFrame:
    """`paired`, of a column of finished runs; no pair without a reference."""
    runs = [each.done if each else line.done.head(0) for each in (line, reference)]
    return paired(*(run.set_index("seed")[column] for run in runs))


def reductions(pairs: pd.DataFrame) -> list[float]:
    """`reduction_percent` of every pair that `paired` gave."""
    return [reduction_percent(own, other) for own, other in zip(pairs["own"], pairs["reference"], strict=True)]


def counted(line: Line, study: Study) -> pd.DataFrame:
    """Steps of the line whose bytes count: of a timing without warm-up and settling, otherwise all."""
    steps = line.of(study.frames.steps)
    return steps[steps["counted"] == 1] if study.experiment.timing else steps


def hardware(runs: pd.DataFrame) -> str:
    """What was measured on, for captions: what several kinds of hardware share is told once."""
    parts = [part for device in sorted(runs["device"].dropna().unique()) for part in device.split("; ")]
    return "; ".join(dict.fromkeys(parts)) or "nothing was measured"


def counts(runs: pd.DataFrame) -> str:
    """How many runs a picture or table rests on, for captions: `n = 3 seeds` or `n = 2 to 3 seeds`."""
    measured = runs[runs["status"] != NOT_RUN]
    numbers = measured.groupby(["model", "method"])["seed"].nunique()
    if numbers.empty:
        return "n = 0"
    least, most = int(numbers.min()), int(numbers.max())
    seeds = f"{most} seed{'s' if most > 1 else ''}"
    return f"n = {seeds} a method" if least == most else f"n = {least} to {seeds} a method"
