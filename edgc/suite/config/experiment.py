"""An experiment: a matrix of runs, and what is shown of them. configs/experiments/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from edgc.core.base.errors import UserError
from edgc.core.settings.method import Method
from edgc.core.settings.reading import CONFIGS, N, Named, available, load
from edgc.core.settings.settings import Settings, cut, merge, shown, validate
from edgc.suite.config.cluster import Cluster, Parallel
from edgc.suite.config.corpus import Corpus
from edgc.suite.config.model import Model
from edgc.suite.config.run import RunSpec
from edgc.suite.config.seeds import Seeds, UntilDecided
from edgc.suite.config.simulation import Simulation
from edgc.suite.config.task import Task
from edgc.suite.config.timing import UNSHAPED, Timing
from edgc.suite.config.trace import Trace
from edgc.suite.config.training import Training
from edgc.suite.config.variant import ByName, shared_variants


class Judgement(Settings):
    """How a difference in quality is judged."""

    margin_nats: NonNegativeFloat = Field(
        0.02, description="A validation-loss gap to the baseline up to this counts as preserved"
    )
    baseline: str = Field("dense", description="Method that the others are compared with")
    gaps_from: tuple[str, ...] = Field(
        (),
        description="For modes time and simulate: experiments whose published tables `accuracy` tell loss gaps; of a "
        "method and model that stand in several the first counts",
    )
    gaps_of: dict[str, str] = Field(
        {}, description="Methods whose gap is another's there, as a test says that both are equal: {zero1_int8: int8}"
    )
    replicas_from: tuple[str, ...] = Field(
        (),
        description="For table `replicas`: experiments that train the same with other degrees of data parallelism; "
        "their published tables `accuracy` are read",
    )
    controls: dict[str, str] = Field(
        {},
        description="For tables `adaptation` and `credit`: methods, each with the one that it is held against, as it "
        "does not adapt to the links or lacks another part, and is otherwise the same: {powersgd_budget: powersgd}",
    )


def _of_methods(methods: list[Any], settings: Any, own: Any) -> Any:
    """Of settings by method: a file's `own`, and inherited ones of methods that are run, as is a method they name."""
    if not isinstance(settings, dict):
        return settings  # refused as it is
    mine = own if isinstance(own, dict) else {}

    def kept(name: str, value: Any) -> bool:
        return name in mine or (name in methods and (isinstance(value, dict) or value in methods))

    return {name: value for name, value in settings.items() if kept(name, value)}


def _or_of_another(schema: dict[str, Any]) -> None:
    """A file that is `of` another needs nothing but its name."""
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["name", "of"]}]


class Experiment(Named):
    """A matrix of runs and what is shown of them (configs/experiments/)."""

    model_config = ConfigDict(json_schema_extra=_or_of_another)
    folder: ClassVar[str] = "experiments"

    name: str = Field(description="Name of the experiment, equal to the file's")
    of: str | None = Field(
        None, description="Another file in configs/experiments: this one is as that, but for what it says itself"
    )
    title: str = Field(description="As printed on the report")
    shows: str = Field(description="What the experiment shows, in a sentence")
    minutes: float = Field(gt=0, description="Rough duration on the named cluster, in minutes")
    mode: Literal["train", "time", "simulate"] = Field(
        "train",
        description="train: every run to its end; time: all methods in turn in one launch, for the time of a step; "
        "simulate: the cluster model",
    )
    loop: Literal["megatron", "ddp", "stacked"] = Field(
        "megatron",
        description="What trains; ddp: a plain loop under PyTorch's DDP, or FSDP2 with training.shard: full; stacked: "
        "all replicas in one process",
    )
    models: tuple[str, ...] = Field(min_length=1, description="Files in configs/models")
    methods: tuple[str, ...] = Field(
        min_length=1, description="Files in configs/methods, or variants: of this file, or else in configs/variants"
    )
    variants: ByName = Field(
        {},
        description="Methods of this experiment's own, by a new name: the file that each is a variant `of`, and what "
        "differs, e.g. {powersgd_r8: {of: powersgd, title: PowerSGD r = 8, policy: {rank: 8}}}",
    )
    learning_rates: tuple[PositiveFloat, ...] = Field(
        (),
        description="Every method at each of these peak learning rates, as <method>_lr<rate>; training.min_lr keeps "
        "its share. Empty: at training.lr",
    )
    seeds: Seeds = Field(
        (1,),
        description="One run per seed: a list, or {first: 3, most: 16, until: decided} for as many as verdicts need",
    )
    corpus: str = Field(description="File in configs/corpora")
    cluster: str = Field(description="File in configs/clusters")
    parallel: Parallel = Field(description="Degrees of parallelism")
    traces: tuple[str, ...] = Field(
        (),
        description="Files in configs/traces: every method once on links that follow each of them; mode train only, on "
        "a cluster with `links: {}`. Empty: links stay as the cluster's file says",
    )
    training: Training = Field(description="How to train")
    timing: Timing | None = Field(None, description="What mode time measures, and how often")
    simulation: Simulation | None = Field(None, description="What mode simulate assumes")
    predict_from: tuple[str, ...] = Field(
        (),
        description="mode time only: experiments of mode time that the cluster model is calibrated on; what it "
        "predicts of this one is written down before this one runs, and shown beside what was measured",
    )
    overrides: dict[str, dict[str, Any]] = Field(
        {},
        description="By method: settings that replace parts of its RunSpec: method, training, loop; "
        "e.g. {topk: {training: {lr: 1e-3}}}",
    )
    tasks: tuple[str, ...] = Field((), description="Files in configs/tasks")
    task_limit: PositiveInt | None = Field(None, description="Examples per task; null: all")
    judgement: Judgement = Field(Judgement(), description="How quality is judged")  # type: ignore[call-arg]
    tables: tuple[str, ...] = Field((), description="Tables beside those that every experiment of its mode has")
    figures: tuple[str, ...] = Field((), description="Figures beside those that every experiment of its mode has")

    @classmethod
    def settled(cls, values: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """Inherited overrides and controls of methods that are not run are dropped; the file's own are left, to be
        refused.

        Inherited variants stay: one that is not run is never looked at, and a file that is `of` this one may run it.
        """
        methods, judgement = values.get("methods"), values.get("judgement")
        if not isinstance(methods, list):
            return values  # refused as it is
        values |= {"overrides": _of_methods(methods, values.get("overrides", {}), own.get("overrides"))}
        if isinstance(judgement, dict) and "controls" in judgement:
            mine = own["judgement"].get("controls") if isinstance(own.get("judgement"), dict) else None
            values |= {"judgement": judgement | {"controls": _of_methods(methods, judgement["controls"], mine)}}
        return values

    @model_validator(mode="after")
    def _names_fit(self) -> Experiment:
        lists = ("models", "methods", "learning_rates", "traces", "tables", "figures")
        matrix = {what: getattr(self, what) for what in lists}
        for what, given in (matrix | {"seeds": self.first_seeds}).items():
            names = [f"{name:g}" if isinstance(name, float) else name for name in given]
            if len(set(names)) != len(names):
                raise ValueError(f"{what} {names} names one twice")
        if unknown := set(self.judgement.gaps_of) - set(self.methods):
            raise ValueError(f"judgement.gaps_of {sorted(unknown)}: not among methods {list(self.methods)}")
        controls = self.judgement.controls
        if unknown := {*controls, *controls.values()} - set(self.methods):
            raise ValueError(f"judgement.controls {sorted(unknown)}: not among methods {list(self.methods)}")
        if own := sorted(name for name, control in controls.items() if name == control):
            raise ValueError(f"judgement.controls {own}: a method is no control of its own; name another one")
        if unknown := set(self.overrides) - set(self.methods):
            raise ValueError(f"overrides for {sorted(unknown)}, which are not among methods {list(self.methods)}")
        for method, changes in self.overrides.items():
            if other := set(changes) - {"method", "training", "loop"}:
                raise ValueError(
                    f"overrides.{method} changes {sorted(other)}; only method, training and loop may differ"
                )
            for group, settings in changes.items():
                if group != "loop" and not isinstance(settings, dict):
                    raise ValueError(f"overrides.{method}.{group} = {shown(settings)}: must be settings by name")
            if changes.get("method", {}).get("name", method) != method:
                raise ValueError(
                    f"overrides.{method}.method.name = {shown(changes['method']['name'])}: it stays {method}; for a "
                    "method of another name write it into variants"
                )
        return self

    @model_validator(mode="after")
    def _mode_fits(self) -> Experiment:
        if (self.timing is None) == (self.mode == "time"):
            raise ValueError("`timing` belongs to mode: time, and mode: time needs it; give both or neither")
        if (self.simulation is None) == (self.mode == "simulate"):
            raise ValueError(
                "`simulation` belongs to mode: simulate, and mode: simulate needs it; give both or neither"
            )
        if self.mode == "simulate" and "dense" not in self.methods:
            raise ValueError("mode: simulate needs `dense` among its methods: what is saved is saved against it")
        other = [f"{method}.{group}" for method, of in self.overrides.items() for group in of if group != "method"]
        if self.mode == "simulate" and other:
            raise ValueError(
                f"overrides.{other[0]}: mode: simulate predicts one training for all methods; set it for all of them, "
                "or write another experiment for this one"
            )
        if self.judgement.gaps_from and self.mode == "train":
            raise ValueError("judgement.gaps_from is not for mode: train, whose runs have loss gaps of their own")
        if self.predict_from and self.mode != "time":
            raise ValueError("predict_from is for mode: time only; only a timing can be held against a prediction")
        if self.traces and self.mode != "train":
            raise ValueError(
                f"traces are for mode: train, not {self.mode}: a timing takes every rate of timing.rates in turn; "
                "leave traces out, or use mode: train"
            )
        if self.until_decided and self.mode != "train":
            raise ValueError(
                f"seeds until decided are for mode: train; mode {self.mode} decides nothing by them, so give a list"
            )
        if self.timing is None:
            return self
        if len(self.first_seeds) > 1 or self.learning_rates or self.tasks:
            raise ValueError("mode: time trains nothing to its end: give one seed, no learning_rates and no tasks")
        if self.training.iterations != self.timing.steps_of_a_method:
            raise ValueError(
                f"training.iterations {self.training.iterations}: by `timing` a method takes "
                f"{self.timing.steps_of_a_method} steps; policies have to know, so set it to that"
            )
        return self

    @property
    def until_decided(self) -> UntilDecided | None:
        """How seeds are added; None if they are given."""
        return self.seeds if isinstance(self.seeds, UntilDecided) else None

    @property
    def first_seeds(self) -> tuple[int, ...]:
        """The seeds that every method begins with: all, if they are given."""
        return tuple(range(1, self.seeds.first + 1)) if isinstance(self.seeds, UntilDecided) else self.seeds

    def runs(self, configs: Path = CONFIGS) -> list[RunSpec]:
        """The matrix models × traces × methods × first seeds, in that order.

        These are all runs, unless seeds are added until verdicts are decided: `edgc.report.planned_runs` knows those.
        """
        return list(self._runs(configs, self.first_seeds))

    def runs_at_most(self, configs: Path = CONFIGS) -> list[RunSpec]:
        """The same with every seed that may be added."""
        seeds = range(1, self.seeds.most + 1) if isinstance(self.seeds, UntilDecided) else self.seeds
        return list(self._runs(configs, seeds))

    def _runs(self, configs: Path, seeds: Iterable[int]) -> Iterator[RunSpec]:
        clusters = list(self._clusters(configs))
        corpus = self._load(Corpus, self.corpus, configs).model_dump()
        models = {name: self._load(Model, name, configs).model_dump() for name in self.models}
        methods = dict(self._methods(configs))
        for model, cluster, (name, changes), seed in product(models.values(), clusters, methods.items(), list(seeds)):
            base = {
                "model": model,
                "corpus": corpus,
                "cluster": cluster,
                "parallel": self.parallel.model_dump(),
                "training": self.training.model_dump(),
                "seed": seed,
                "loop": self.loop,
            }
            yield validate(RunSpec, merge(base, changes), f"experiment {self.name}, method {name}")

    def _clusters(self, configs: Path) -> Iterator[dict[str, Any]]:
        """The cluster's settings, with the links of each of `traces`."""
        cluster = self.load_cluster(configs)
        if not self.traces:
            yield cluster.model_dump()
        elif cluster.links is None or cluster.links.rate is not None:
            has = "no links" if cluster.links is None else f"links of rate {cluster.links.rate}"
            raise UserError(
                f"experiment {self.name}: traces {', '.join(self.traces)}: cluster {cluster.name} has {has}, and a "
                "trace needs links whose rates it may set; use a cluster with `links: {}`"
            )
        for name in self.traces:
            links = {"links": {"trace": self._load(Trace, name, configs).model_dump()}}
            where = f"experiment {self.name}, trace {name}"
            yield validate(Cluster, cluster.model_dump() | links, where).model_dump()

    def _methods(self, configs: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """By name: the method's settings, and what it changes of the training and the loop."""
        variants = shared_variants(configs) | self.variants
        for name in self.methods:
            method = self._method(name, variants, configs)
            training = {"optimizer": method["optimizer"]} if method.get("optimizer") else {}
            changes = merge({"method": method, "training": training}, self.overrides.get(name, {}))
            if not self.learning_rates:
                yield name, changes
            for lr in self.learning_rates:
                named = {"name": f"{name}_lr{lr:g}", "title": f"{changes['method']['title']}, lr {lr:g}"}
                rate = {"lr": lr, "min_lr": self.training.min_lr / self.training.lr * lr}
                method, training = merge(changes["method"], named), merge(changes["training"], rate)
                yield named["name"], changes | {"method": method, "training": training}

    def _method(self, name: str, variants: dict[str, dict[str, Any]], configs: Path) -> dict[str, Any]:
        known = available(Method, configs)
        if name not in variants and name not in known:
            raise UserError(
                f"experiment {self.name}: method {shown(name)}: no file in configs/methods and no variant; there are: "
                f"{', '.join(sorted({*known, *variants}))}"
            )
        if name not in variants:
            return self._load(Method, name, configs).model_dump()
        if name in known:
            raise UserError(f"experiment {self.name}: variants.{name}: there is a file of that name; choose another")
        own = {"name": name} | {key: value for key, value in variants[name].items() if key != "of"}
        return merge(self._load(Method, variants[name]["of"], configs).model_dump(), own)

    def _load(self, kind: type[N], name: str, configs: Path) -> N:
        return load(kind, name, configs, f"experiment {self.name}: ")

    def load_cluster(self, configs: Path = CONFIGS) -> Cluster:
        """The cluster. Raises `UserError` if a timing's links cannot be made on it, or its cores not waited for."""
        cluster = self._load(Cluster, self.cluster, configs)
        if self.timing and cluster.links is None and self.timing.rates != (UNSHAPED,):
            raise UserError(
                f"experiment {self.name}: timing.rates {', '.join(self.timing.rates)}: cluster {cluster.name} has no "
                f"links that could be set; give its file `links: {{}}`, or use rates: [{UNSHAPED}]"
            )
        if self.timing and self.timing.patience and cluster.device != "cpu":
            raise UserError(
                f"experiment {self.name}: timing.patience {self.timing.patience:g}: cluster {cluster.name} is of "
                f"device {cluster.device}, and only cpu cores are waited for; set it to 0"
            )
        return cluster

    def run(self, run_id: str, configs: Path = CONFIGS) -> RunSpec:
        """The run of this id. Raises `UserError` if the experiment has none."""
        runs = {spec.run_id: spec for spec in self.runs_at_most(configs)}
        if run_id not in runs:
            raise UserError(f"run {run_id}: experiment {self.name} has {', '.join(runs)}")
        return runs[run_id]


def load_experiment(name: str, configs: Path = CONFIGS) -> Experiment:
    """Read an experiment and validate every file it names, so that nothing fails after the first launch."""
    experiment = load(Experiment, name, configs)
    for task in experiment.tasks:
        experiment._load(Task, task, configs)
    methods = {spec.method.name: spec.method for spec in experiment.runs(configs)}
    if experiment.judgement.baseline not in methods:
        raise UserError(
            f"experiment {name}: judgement.baseline {shown(experiment.judgement.baseline)} is not among its methods; "
            f"set it to one of {cut(', '.join(methods), 500)}"
        )
    _check_judgement(experiment, configs)
    for source in experiment.predict_from:
        _check_source(experiment, source, configs)
    if experiment.timing:
        for method in methods.values():
            period = method.synchronisation.period
            if experiment.timing.steps % period:
                enough = period * -(-experiment.timing.steps // period)
                raise UserError(
                    f"experiment {name}: timing.steps {experiment.timing.steps}: method {method.name} exchanges every "
                    f"{period} steps, so the steps of a cell must be a multiple of {period}; use {enough}"
                )
    controls = [method.name for method in methods.values() if method.control]
    if controls and experiment.mode != "time":
        raise UserError(
            f"experiment {name}: {', '.join(controls)}: for mode: time only; nothing can be trained with it"
        )
    return experiment


def _check_judgement(experiment: Experiment, configs: Path) -> None:
    """Refuse experiments that do not exist, and two with as many replicas for one table."""
    judgement, known = experiment.judgement, available(Experiment, configs)
    degrees = {experiment.parallel.data: experiment.name}
    sources = [("gaps_from", each) for each in judgement.gaps_from]
    sources += [("replicas_from", each) for each in judgement.replicas_from]
    for setting, named in sources:
        where = f"experiment {experiment.name}: judgement.{setting} {shown(named)}"
        if named not in known:
            raise UserError(f"{where}: allowed are {', '.join(known)}")
        degree = load(Experiment, named, configs).parallel.data
        if setting == "replicas_from" and degrees.setdefault(degree, named) != named:
            raise UserError(
                f"{where}: parallel.data is {degree}, as in {degrees[degree]}; name experiments of other degrees"
            )


def _check_source(experiment: Experiment, name: str, configs: Path) -> None:
    """Raise `UserError` unless a timing of this name was made on what the experiment runs on."""
    source = experiment._load(Experiment, name, configs)
    own, theirs = [(each.mode, each.cluster, each.corpus) for each in (experiment, source)]
    if own != theirs or source.predict_from:
        raise UserError(
            f"experiment {experiment.name}: predict_from {name}: must be of mode time on cluster {experiment.cluster} "
            f"with corpus {experiment.corpus}, and predict nothing itself; it is of mode {source.mode} on "
            f"{cut(source.cluster, 80)} with {cut(source.corpus, 80)}"
        )
