"""An experiment: a matrix of runs, and what is shown of them. configs/experiments/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from edgc.config.cluster import Cluster, Parallel
from edgc.config.corpus import Corpus
from edgc.config.files import CONFIGS, Named, load
from edgc.config.method import Method
from edgc.config.model import Model
from edgc.config.run import RunSpec
from edgc.config.task import Task
from edgc.config.training import Training
from edgc.errors import UserError
from edgc.settings import Settings, merge, validate


class Judgement(Settings):
    """How a difference in quality is judged."""

    margin_nats: NonNegativeFloat = Field(
        0.02, description="A validation-loss gap to the baseline up to this counts as preserved"
    )
    baseline: str = Field("dense", description="Method that the others are compared with")


class Experiment(Named):
    """A matrix of runs and what is shown of them (configs/experiments/)."""

    folder: ClassVar[str] = "experiments"

    name: str = Field(description="Name of the experiment, equal to the file's")
    title: str = Field(description="As printed on the report")
    shows: str = Field(description="What the experiment shows, in a sentence")
    minutes: float = Field(gt=0, description="Rough duration on the named cluster, in minutes")
    mode: Literal["train", "simulate"] = Field("train", description="train: measure; simulate: the cluster model")
    models: tuple[str, ...] = Field(min_length=1, description="Files in configs/models")
    methods: tuple[str, ...] = Field(min_length=1, description="Files in configs/methods")
    seeds: tuple[int, ...] = Field((1,), min_length=1, description="One run per seed")
    corpus: str = Field(description="File in configs/corpora")
    cluster: str = Field(description="File in configs/clusters")
    parallel: Parallel = Field(description="Degrees of parallelism")
    training: Training = Field(description="How to train")
    overrides: dict[str, dict[str, Any]] = Field(
        {}, description="By method: settings that replace parts of its RunSpec, e.g. {topk: {training: {lr: 1e-3}}}"
    )
    tasks: tuple[str, ...] = Field((), description="Files in configs/tasks")
    task_limit: PositiveInt | None = Field(None, description="Examples per task; null: all")
    judgement: Judgement = Field(Judgement(), description="How quality is judged")  # type: ignore[call-arg]
    tables: tuple[str, ...] = Field((), description="Tables beside those that every experiment has")
    figures: tuple[str, ...] = Field((), description="Figures beside those that every experiment has")

    @model_validator(mode="after")
    def _names_fit(self) -> Experiment:
        for what in ("models", "methods", "seeds", "tables", "figures"):
            names = getattr(self, what)
            if len(set(names)) != len(names):
                raise ValueError(f"{what} {list(names)} names one twice")
        if unknown := set(self.overrides) - set(self.methods):
            raise ValueError(f"overrides for {sorted(unknown)}, which are not among methods {list(self.methods)}")
        for method, changes in self.overrides.items():
            if other := set(changes) - {"method", "training"}:
                raise ValueError(f"overrides.{method} changes {sorted(other)}; only method and training may differ")
        return self

    def runs(self, configs: Path = CONFIGS) -> list[RunSpec]:
        """The matrix models × methods × seeds, in that order."""
        return list(self._runs(configs))

    def _runs(self, configs: Path) -> Iterator[RunSpec]:
        cluster = load(Cluster, self.cluster, configs).model_dump()
        corpus = load(Corpus, self.corpus, configs).model_dump()
        models = {name: load(Model, name, configs).model_dump() for name in self.models}
        methods = {name: load(Method, name, configs).model_dump() for name in self.methods}
        for model in models.values():
            for name, method in methods.items():
                for seed in self.seeds:
                    base = {
                        "model": model,
                        "method": method,
                        "corpus": corpus,
                        "cluster": cluster,
                        "parallel": self.parallel.model_dump(),
                        "training": self.training.model_dump(),
                        "seed": seed,
                    }
                    where = f"experiment {self.name}, method {name}"
                    yield validate(RunSpec, merge(base, self.overrides.get(name, {})), where)

    def run(self, run_id: str, configs: Path = CONFIGS) -> RunSpec:
        """The run of this id. Raises `UserError` if the experiment has none."""
        runs = {spec.run_id: spec for spec in self.runs(configs)}
        if run_id not in runs:
            raise UserError(f"run {run_id}: experiment {self.name} has {', '.join(runs)}")
        return runs[run_id]


def load_experiment(name: str, configs: Path = CONFIGS) -> Experiment:
    """Read an experiment and validate every file it names, so that nothing fails after the first launch."""
    experiment = load(Experiment, name, configs)
    for task in experiment.tasks:
        load(Task, task, configs)
    if experiment.judgement.baseline not in experiment.methods:
        raise UserError(
            f"experiment {name}: judgement.baseline {experiment.judgement.baseline!r} is not among its methods"
        )
    if experiment.mode == "simulate":
        raise UserError(f"experiment {name}: mode = simulate: the cluster model is not built yet; allowed: train")
    experiment.runs(configs)
    return experiment
