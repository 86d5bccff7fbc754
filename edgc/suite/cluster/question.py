"""From the names of a model and a cluster to the scenario that is forecast."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.suite.cluster.trajectory import ASSUMED, Trajectory
from edgc.suite.config import (
    CONFIGS,
    Calibration,
    Cluster,
    Corpus,
    Experiment,
    Method,
    Model,
    Parallel,
    RunSpec,
    available,
    load,
)
from edgc.suite.config.rate import bits_per_second

METHODS = ("dense", "dense_bf16", "dense_bf16_overlap", "powersgd", "powersgd_8_4", "int4", "edgc")
PAGE_METHODS = (*METHODS, "edgc_measured", "topk", "int8", "onebit", "diloco")  #: the published page's
#: What users weigh where replicas are far from each other: less often, later, from neighbours only, or fewer bytes.
SITE_METHODS = (
    *METHODS[:6], "onebit", "dion", "demo", "localsgd", "diloco", "diloco_int4", "diloco_powersgd",
    "streaming_diloco", "muloco", "sparseloco", "delayed", "delayed_powersgd", "powergossip",
)  # fmt: skip
SITE_CLUSTER, SITE_MODEL = "internet-a100x32", "gpt2-2.5b"  #: where `edgc plan --sites` is told neither
TENSOR_FROM = 1e9  #: parameters from which on a model is split inside its nodes by default
SHARDS = {"shard", "parameter_wire"}  #: settings of `training` that a plan does not take from an experiment
LAYER_PARAMETERS = 12  #: times hidden², of a transformer layer
MICRO_BATCHES = 8  #: a data rank and step, where no experiment says otherwise
TRAINING = {"iterations": 230_000, "micro_batch": 4}  #: the same; iterations are the paper's


@dataclass(frozen=True)
class Scenario:
    """What is forecast: a run, the rates of its machines, and what its gradients do."""

    spec: RunSpec  #: with method `dense`
    calibration: Calibration
    precision: str  #: of compute
    trajectory: Trajectory = ASSUMED

    def at(self, gbit: float) -> Scenario:
        """The same on links of another rate."""
        return replace(self, spec=at_rate(self.spec, gbit))

    def far(self, latency_ms: float) -> Scenario:
        """The same with another latency between nodes, one way."""
        return replace(self, calibration=elsewhere(self.calibration, latency_ms))

    @property
    def words(self) -> str:
        """In a line."""
        spec, p, t = self.spec, self.spec.parallel, self.spec.training
        sharded = f", shard {t.shard} with parameters {t.parameter_wire}" if t.shard != "none" else ""
        return (
            f"{spec.model.name} on {spec.cluster.name}: {spec.cluster.processes} × {spec.cluster.device_model}, "
            f"tensor {p.tensor} × pipeline {p.pipeline} × data {p.data}, {spec.cluster.gbit or 0:g} Gbit/s a "
            f"node, {self.precision}, {spec.micro_batches} micro-batches of {t.micro_batch}, {t.iterations} "
            f"iterations{sharded}"
        )


@dataclass(frozen=True)
class Question:
    """A model on a cluster; None: as an experiment of both, or the cluster's file, has it."""

    model: str
    cluster: str
    nodes: int | None = None
    link: str | None = None  #: rate of a node's link, e.g. 200gbit
    latency_ms: float | None = None  #: between nodes, one way
    precision: str | None = None  #: of compute
    sites: int | None = None  #: each a node with whole replicas
    parallel: Mapping[str, int | None] = field(default_factory=dict)  #: degrees
    training: Mapping[str, Any] = field(default_factory=dict)  #: batches, iterations, shards
    calibration: str | None = None  #: None: the devices'
    stage_speeds: Sequence[float] = ()  #: against the calibration's; empty: all 1

    def scenario(self, configs: Path = CONFIGS, trajectory: Trajectory = ASSUMED) -> Scenario:
        """What answers it. Raises `UserError` where that cannot be."""
        spec = self.spec(configs)
        rates = elsewhere(calibration_of(spec.cluster, self.calibration, configs), self.latency_ms, self.stage_speeds)
        return Scenario(spec, rates, self.precision or spec.training.precision, trajectory)

    def spec(self, configs: Path = CONFIGS) -> RunSpec:
        """The run of method `dense`: as an experiment of this model on this cluster has it, else by defaults."""
        asked = {k: v for k, v in self._degrees().items() if v is not None}
        found, machines, model = self._experiment(configs), self._machines(configs), load(Model, self.model, configs)
        # shards are asked for, and never taken from an experiment that happens to be about them
        training: dict[str, Any] = found.training.model_dump(exclude=SHARDS) if found else dict(TRAINING)
        training |= {k: v for k, v in self.training.items() if v is not None}
        full = training.get("shard") == "full"
        if full:
            asked = {"tensor": 1, "pipeline": 1} | asked
        elif found:
            asked = found.parallel.model_dump(exclude={"data"} if asked or self.nodes else None) | asked
        degrees = _with_defaults(asked, model, machines)
        corpus = {"name": "any", "source": "hub", "dataset": "any", "tokenizer": {"kind": "gpt2"}}
        if found:
            corpus = load(Corpus, found.corpus, configs).model_dump()
        whole = training["micro_batch"] * degrees["data"]
        if self.training.get("global_batch") is None and training.get("global_batch", whole) % whole:
            del training["global_batch"]  # an experiment's, of other machines than these
        training.setdefault("global_batch", MICRO_BATCHES * whole)
        return validate(
            RunSpec,
            {
                "model": model.model_dump(),
                "method": load(Method, "dense", configs).model_dump(),
                "corpus": corpus,
                "cluster": machines.model_dump(),
                "parallel": degrees,
                "training": training,
                "seed": 1,
                "loop": "ddp" if full else "megatron",
            },
            f"{self.model} on {self.cluster}",
        )

    def _degrees(self) -> Mapping[str, int | None]:
        """Those asked for. Raises `UserError` where stages would cross sites."""
        if self.sites is None:
            return self.parallel
        if self.nodes is not None:
            raise UserError(
                f"--sites {self.sites} --nodes {self.nodes}: a site is a node of the cluster's file; leave --nodes out"
            )
        if (self.parallel.get("pipeline") or 1) > 1:
            raise UserError(
                f"--sites {self.sites} --pipeline {self.parallel['pipeline']}: every site has whole replicas; leave "
                "--pipeline out, or use --nodes for stages at several sites"
            )
        return {**self.parallel, "pipeline": 1}

    def _experiment(self, configs: Path) -> Experiment | None:
        every = (_experiment(name, configs) for name in available(Experiment, configs))
        return next((e for e in every if e and self.model in e.models and e.cluster == self.cluster), None)

    def _machines(self, configs: Path) -> Cluster:
        machines, nodes = load(Cluster, self.cluster, configs), self.sites or self.nodes
        if self.link is not None:
            machines = _linked(machines, bits_per_second(self.link) / 1e9)
        return machines if nodes is None else machines.model_copy(update={"nodes": nodes})


@cache  # the page asks for all of them at every model and cluster
def _experiment(name: str, configs: Path) -> Experiment | None:
    """None, and a note, where it is not valid: nobody has asked for it."""
    try:
        return load(Experiment, name, configs)
    except UserError as error:
        print(f"Experiment {name} is not looked at for a set-up of this model and cluster: {error}", file=sys.stderr)
        return None


def _with_defaults(given: dict[str, int], model: Model, cluster: Cluster) -> dict[str, int]:
    """All three: by default a large model is split over its nodes' devices, and data parallelism is the rest."""
    parameters = LAYER_PARAMETERS * model.num_layers * model.hidden_size**2
    tensor = given.get("tensor") or (cluster.processes_per_node if parameters >= TENSOR_FROM else 1)
    pipeline = given.get("pipeline") or 1
    data = given.get("data") or max(1, cluster.processes // (tensor * pipeline))
    return Parallel(tensor=tensor, pipeline=pipeline, data=data).model_dump()


def _linked(cluster: Cluster, gbit: float) -> Cluster:
    links = cluster.links and cluster.links.model_copy(update={"rate": None})
    return cluster.model_copy(update={"link_gbit": gbit, "links": links})


def at_rate(spec: RunSpec, gbit: float) -> RunSpec:
    """The same run on nodes with links of another rate."""
    return spec.model_copy(update={"cluster": _linked(spec.cluster, gbit)})


def of_method(spec: RunSpec, method: Method) -> RunSpec:
    """The same run with another method. Raises `UserError` for one that does not work where anything is sharded."""
    made_for = {"optimizer": method.optimizer} if method.optimizer else {}
    if spec.training.shard == "none":
        return spec.model_copy(update={"method": method, "training": spec.training.model_copy(update=made_for)})
    plain = spec.model_dump()
    changed = {"method": method.model_dump(), "training": plain["training"] | made_for}
    return validate(RunSpec, plain | changed, f"method {method.name}")


def calibration_of(cluster: Cluster, name: str | None = None, configs: Path = CONFIGS) -> Calibration:
    """The calibration of this name; without one, that of the cluster's devices, a calibrated one if there are both.

    Raises `UserError` if there is none.
    """
    if name is not None:
        return load(Calibration, name, configs)
    every = [load(Calibration, each, configs) for each in available(Calibration, configs)]
    fitting = [each for each in every if each.device_model == cluster.device_model]
    if not fitting:
        raise UserError(
            f"cluster {cluster.name}: device_model = {cluster.device_model!r}: no calibration of it; there are "
            f"{', '.join(sorted({each.device_model for each in every}))}; measure one with `edgc calibrate`, or choose "
            "one by --calibration"
        )
    return min(fitting, key=lambda each: each.source == "assumed")


def elsewhere(rates: Calibration, latency_ms: float | None = None, speeds: Sequence[float] = ()) -> Calibration:
    """The calibration with nodes so far from each other, and stages of such speeds, as far as they are given."""
    changed: dict[str, object] = {} if latency_ms is None else {"link_latency_us": 1e3 * latency_ms}
    if speeds:
        changed["stage_speeds"] = tuple(speeds)
    return validate(Calibration, rates.model_dump() | changed, f"calibration {rates.name}")


def chosen(methods: Sequence[str], configs: Path = CONFIGS) -> list[Method]:
    """These methods (none: the usual ones), with dense and its best form among them, for there is no saving without."""
    names = [*dict.fromkeys([*METHODS[:3], *(methods or METHODS)])]
    loaded = [load(Method, name, configs) for name in names]
    if controls := [method.name for method in loaded if method.control]:
        raise UserError(f"method {', '.join(controls)}: a control of timings; nobody trains with it")
    return loaded
