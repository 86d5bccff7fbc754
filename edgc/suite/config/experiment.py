"""An experiment: a matrix of runs, and what is shown of them. configs/experiments/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt

from edgc.core.base.errors import UserError
from edgc.core.base.settings import cut, merge, shown, validate
from edgc.core.settings.method import Method
from edgc.core.settings.reading import CONFIGS, N, Named, available, load
from edgc.suite.config.cluster import Cluster, Parallel
from edgc.suite.config.corpus import Corpus
from edgc.suite.config.judgement import Judgement, Seeds, UntilDecided
from edgc.suite.config.model import Model
from edgc.suite.config.run import LOOP, Loop, RunSpec
from edgc.suite.config.simulation import Simulation
from edgc.suite.config.task import Task
from edgc.suite.config.timing import UNSHAPED, Timing
from edgc.suite.config.trace import Trace
from edgc.suite.config.training import Training
from edgc.suite.config.variant import ByName, InLayout, shared_variants


def _called(values: dict[str, Any]) -> set[str] | None:
    """Names of the methods that a file's values run; None if they are refused anyway."""
    try:
        layouts = [InLayout(**each) for each in values.get("layouts", ())]
        return {*values["methods"], *(each.called(method) for each in layouts for method in each.methods)}
    except (KeyError, TypeError, ValueError):
        return None


def _or_of_another(schema: dict[str, Any]) -> None:
    """A file that is `of` another needs nothing but its name, a part nothing at all."""
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["name", "of"]}]
    of_a_part = [name for name in schema["properties"] if name not in ("name", "parts")]
    schema["properties"]["parts"]["additionalProperties"] |= {"propertyNames": {"enum": of_a_part}}


class Experiment(Named):
    """A matrix of runs and what is shown of them (configs/experiments/)."""

    model_config = ConfigDict(json_schema_extra=_or_of_another)
    folder: ClassVar[str] = "experiments"

    of: str | None = Field(
        None,
        description="Another experiment: this one is as that, but for what it says itself. A part is `of` its file, "
        "unless it says another",
    )
    parts: dict[str, dict[str, Any]] = Field(
        {},
        description="Further experiments of the same question, by name: what differs from the file's own, e.g. "
        "{quality-short: {title: A short one, training: {iterations: 100}}}",
    )
    title: str = Field(description="As printed on the report")
    shows: str = Field(description="What the experiment shows, in a sentence")
    minutes: float = Field(gt=0, description="Rough duration on the named cluster, in minutes")
    mode: Literal["train", "time", "simulate"] = Field(
        "train",
        description="train: every run to its end; time: all methods in turn in one launch, for the time of a step; "
        "simulate: the cluster model",
    )
    loop: Loop = LOOP
    models: tuple[str, ...] = Field(min_length=1, description="Files in configs/models")
    methods: tuple[str, ...] = Field(
        min_length=1, description="Files in configs/methods, or variants: of this file, or else in configs/variants"
    )
    variants: ByName = Field(
        {},
        description="Methods of this experiment's own, by a new name: the file that each is a variant `of`, and what "
        "differs, e.g. {powersgd_r8: {of: powersgd, title: PowerSGD r = 8, policy: {rank: 8}}}",
    )
    layouts: tuple[InLayout, ...] = Field((), description="Methods that are run in other layouts, too")
    lr_of: dict[str, PositiveFloat] = Field(
        {},
        description="By method: its peak learning rate, where it is not training.lr; training.min_lr keeps its share",
    )
    learning_rates: tuple[PositiveFloat, ...] = Field(
        (),
        description="Every method at each of these peak learning rates, as <method>_lr<rate>; training.min_lr keeps "
        "its share. Empty: at its own of `lr_of`, or at training.lr",
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
    def handed_down(cls, inherited: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """Without rungs, which are often the base's parts, and without overrides, rates and controls of methods that
        are not run, as is a method that a control names.

        The file's own are left, to be refused. Inherited variants stay: one that is not run is never looked at.
        """
        methods, judgement = _called(inherited | own), inherited.get("judgement", {})
        if isinstance(judgement, dict) and "rungs_from" in judgement:
            judgement = {name: value for name, value in judgement.items() if name != "rungs_from"}
            inherited = inherited | {"judgement": judgement}
        if methods is None:
            return inherited

        def run(settings: Any) -> Any:
            if not isinstance(settings, dict):
                return settings  # refused as it is
            named = {name: of for name, of in settings.items() if not isinstance(of, str) or of in methods}
            return {name: of for name, of in named.items() if name in methods}

        left = {key: run(inherited[key]) for key in ("overrides", "lr_of") if key in inherited}
        if isinstance(judgement, dict) and "controls" in judgement:
            left["judgement"] = judgement | {"controls": run(judgement["controls"])}
        return inherited | left

    def refusals(self) -> Iterator[str]:
        lists = ("models", "learning_rates", "traces", "tables", "figures")
        matrix = {what: getattr(self, what) for what in lists} | {"methods": self.names, "seeds": self.first_seeds}
        for what, given in matrix.items():
            names = [f"{name:g}" if isinstance(name, float) else name for name in given]
            if len(set(names)) != len(names):
                yield f"{what} {names} names one twice"
        controls = self.judgement.controls
        for what, named in (
            ("judgement.gaps_of", {*self.judgement.gaps_of}),
            ("judgement.controls", {*controls, *controls.values()}),
            ("overrides", {*self.overrides}),
            ("lr_of", {*self.lr_of}),
        ):
            if unknown := named - set(self.names):
                yield f"{what} {sorted(unknown)}: not among methods {list(self.names)}"
        if own := sorted(name for name, control in controls.items() if name == control):
            yield f"judgement.controls {own}: a method is no control of its own; name another one"
        for method, changes in self.overrides.items():
            if other := set(changes) - {"method", "training", "loop"}:
                yield (f"overrides.{method} changes {sorted(other)}; only method, training and loop may differ")
            for group, settings in changes.items():
                if group != "loop" and not isinstance(settings, dict):
                    yield f"overrides.{method}.{group} = {shown(settings)}: must be settings by name"
            if changes.get("method", {}).get("name", method) != method:
                yield (
                    f"overrides.{method}.method.name = {shown(changes['method']['name'])}: it stays {method}; for a "
                    "method of another name write it into variants"
                )
        yield from self._mode_refused()

    def _mode_refused(self) -> Iterator[str]:
        if self.mode == "time" and self.timing is None:
            yield "mode: time needs `timing`"
        for setting, given, modes in (
            ("`timing`", self.timing, ("time",)),
            ("`simulation`", self.simulation, ("simulate",)),
            ("predict_from", self.predict_from, ("time",)),
            ("judgement.gaps_from", self.judgement.gaps_from, ("time", "simulate")),
            ("traces", self.traces, ("train",)),
            ("loop: stacked, whose seconds are no cluster's", self.stacked, ("train",)),
            ("seeds until decided", self.until_decided, ("train",)),
            ("more than one seed", len(self.first_seeds) > 1, ("train", "simulate")),
            ("learning_rates", self.learning_rates, ("train",)),
            ("tasks", self.tasks, ("train", "simulate")),
            ("training.probe", self.training.probe.looks, ("train", "simulate")),
            ("training.tensorboard", self.training.tensorboard, ("train", "simulate")),
        ):
            if given and self.mode not in modes:
                yield f"{setting}: for mode: {' or '.join(modes)}, not for mode: {self.mode}; leave it out"
        if self.mode == "simulate":
            yield from self._simulation_refused()
        if self.timing and self.training.iterations != self.timing.steps_of_a_method:
            yield (
                f"training.iterations {self.training.iterations}: by `timing` a method takes "
                f"{self.timing.steps_of_a_method} steps; policies have to know, so set it to that"
            )

    def _simulation_refused(self) -> Iterator[str]:
        if self.simulation is None:
            yield "mode: simulate needs `simulation`"
        if "dense" not in self.methods:
            yield "mode: simulate needs `dense` among its methods: what is saved is saved against it"
        other = [f"overrides.{method}.{group}" for method, of in self.overrides.items() for group in {*of} - {"method"}]
        other += [setting for setting in ("layouts", "lr_of") if getattr(self, setting)]
        if other:
            yield (
                f"{other[0]}: mode: simulate predicts one training for all methods; set it for all of them, or write "
                "another experiment for this one"
            )

    @property
    def stacked(self) -> bool:
        """Whether replicas of any run share a process, so that its seconds say nothing of a cluster."""
        return "stacked" in (self.loop, *(changes.get("loop") for changes in self.overrides.values()))

    @property
    def names(self) -> list[str]:
        """Names of all methods as they are run: `methods`, and those of `layouts` as they are called there."""
        return [name for name, _, _ in self._placed]

    @property
    def _placed(self) -> list[tuple[str, str, InLayout | None]]:
        """Methods by their names in `names`, with those that they have elsewhere, and the layout if it is not DDP."""
        elsewhere = [(each.called(method), method, each) for each in self.layouts for method in each.methods]
        return [*((method, method, None) for method in self.methods), *elsewhere]

    def loses_as(self, method: str) -> str:
        """Name of the method whose loss gap a run of this name has: by `judgement.gaps_of` or `layouts`, or its own."""
        alike = {name: layout.loses_as(plain) for name, plain, layout in self._placed if layout}
        return (alike | self.judgement.gaps_of).get(method, method)

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
        variants, known = shared_variants(configs) | self.variants, available(Method, configs)
        for name, plain, layout in self._placed:
            method = self._method(plain, variants, known, configs)
            training = {"optimizer": method["optimizer"]} if method.get("optimizer") else {}
            changes: dict[str, Any] = {"method": method, "training": training}
            changes = layout.applied(changes) if layout else changes
            changes["training"] |= self._rate(self.lr_of[name]) if name in self.lr_of else {}
            changes = merge(changes, self.overrides.get(name, {}))
            if not self.learning_rates:
                yield name, changes
            for lr in self.learning_rates:
                named = {"name": f"{name}_lr{lr:g}", "title": f"{changes['method']['title']}, lr {lr:g}"}
                method, training = merge(changes["method"], named), merge(changes["training"], self._rate(lr))
                yield named["name"], changes | {"method": method, "training": training}

    def _rate(self, lr: float) -> dict[str, float]:
        return {"lr": lr, "min_lr": self.training.min_lr / self.training.lr * lr}

    def _method(
        self, name: str, variants: dict[str, dict[str, Any]], known: Sequence[str], configs: Path
    ) -> dict[str, Any]:
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
        if self.timing and cluster.links and cluster.links.rate is not None:
            raise UserError(
                f"experiment {self.name}: cluster {cluster.name} has links.rate {cluster.links.rate}, but a timing "
                f"sets rates itself; write timing.rates: [{cluster.links.rate}], and use a cluster with `links: {{}}`"
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
    runs = experiment.runs(configs)
    methods = {spec.method.name: spec.method for spec in runs}
    if experiment.mode != "simulate" and (why := next(filter(None, (spec.cannot_launch() for spec in runs)), None)):
        raise UserError(f"experiment {name}: {why}")
    refusals = (_methods_refused(experiment, methods), _tasks_refused(experiment, runs))
    for refused in (*refusals, _sources_refused(experiment, configs)):
        for why in refused:
            raise UserError(f"experiment {name}: {why}")
    return experiment


def _methods_refused(experiment: Experiment, methods: dict[str, Method]) -> Iterator[str]:
    baseline, timing = experiment.judgement.baseline, experiment.timing
    if baseline not in methods:
        yield (
            f"judgement.baseline {shown(baseline)} is not among its methods; set it to one of "
            f"{cut(', '.join(methods), 500)}"
        )
    for method in methods.values():
        period = method.synchronisation.period
        if timing and timing.steps % period:
            yield (
                f"timing.steps {timing.steps}: method {method.name} exchanges every {period} steps, so the steps of a "
                f"cell must be a multiple of {period}; use {period * -(-timing.steps // period)}"
            )
    controls = [method.name for method in methods.values() if method.control]
    if controls and experiment.mode != "time":
        yield f"{', '.join(controls)}: for mode: time only; nothing can be trained with it"


def _tasks_refused(experiment: Experiment, runs: Sequence[RunSpec]) -> Iterator[str]:
    mixtures = sorted({spec.model.name for spec in runs if spec.model.experts})
    if experiment.tasks and mixtures:
        yield (
            f"tasks {', '.join(experiment.tasks)}: {', '.join(mixtures)} has experts, and is not exported as a GPT-2 "
            "that tasks could be asked of; leave tasks out"
        )


def _sources_refused(experiment: Experiment, configs: Path) -> Iterator[str]:
    """Experiments that do not exist, two with as many replicas for one table, timings made on something else."""
    judgement, known = experiment.judgement, available(Experiment, configs)
    degrees = {experiment.parallel.data: experiment.name}
    by_degree = bool({"replicas", "gap_replicas"} & {*experiment.tables, *experiment.figures})
    sources = [("gaps_from", each) for each in judgement.gaps_from]
    sources += [("rungs_from", each) for each in judgement.rungs_from]
    for setting, named in sources:
        where = f"judgement.{setting} {shown(named)}"
        if named not in known:
            yield f"{where}: allowed are {', '.join(known)}"
        degree = load(Experiment, named, configs).parallel.data
        if setting == "rungs_from" and by_degree and degrees.setdefault(degree, named) != named:
            yield f"{where}: parallel.data is {degree}, as in {degrees[degree]}; name experiments of other degrees"
    for name in experiment.predict_from:
        source = experiment._load(Experiment, name, configs)
        own, theirs = [(each.mode, each.cluster, each.corpus) for each in (experiment, source)]
        if own != theirs or source.predict_from:
            yield (
                f"predict_from {name}: must be of mode time on cluster {experiment.cluster} with corpus "
                f"{experiment.corpus}, and predict nothing itself; it is of mode {source.mode} on "
                f"{cut(source.cluster, 80)} with {cut(source.corpus, 80)}"
            )
