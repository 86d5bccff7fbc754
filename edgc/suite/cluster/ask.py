"""From the names of a model and a cluster to what is to be predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgc.core.base.errors import UserError
from edgc.core.settings.settings import validate
from edgc.suite.config import (
    CONFIGS,
    Calibration,
    Cluster,
    Experiment,
    Method,
    Model,
    Parallel,
    RunSpec,
    available,
    load,
)
from edgc.suite.config.rate import bits_per_second

METHODS = ("dense", "dense_bf16", "dense_bf16_overlap", "powersgd", "edgc")
#: What users weigh where replicas are far from each other: less often, later, from neighbours only, or fewer bytes.
SITE_METHODS = (
    *METHODS[:3], "powersgd", "int4", "onebit", "dion", "demo", "localsgd", "diloco", "diloco_int4", "diloco_powersgd",
    "streaming_diloco", "muloco", "sparseloco", "delayed", "delayed_powersgd", "powergossip",
)  # fmt: skip
SITE_CLUSTER, SITE_MODEL = "internet-a100x32", "gpt2-2.5b"  #: where `edgc plan --sites` is told neither
TENSOR_FROM = 1e9  #: parameters from which on a model is split inside its nodes by default
SHARDS = {"shard", "parameter_wire"}  #: settings of `training` that a plan does not take from an experiment
LAYER_PARAMETERS = 12  #: times hidden², of a transformer layer
ITERATIONS, MICRO_BATCHES = 230_000, 8  #: where no experiment says otherwise: the paper's, and as many a data rank


def question(
    model: str,
    cluster: str,
    link: str | None = None,
    parallel: Mapping[str, int | None] | None = None,
    training: Mapping[str, Any] | None = None,
    configs: Path = CONFIGS,
    nodes: int | None = None,
) -> RunSpec:
    """The run of method `dense` to predict: as an experiment of this model on this cluster has it, else by defaults.

    Args:
        link: rate of a node's link, e.g. 200gbit; None: the cluster file's.
        parallel, training: degrees, and batches or shards, that replace those.
        nodes: machines; None: the cluster file's.
    """
    found = _experiment(model, cluster, configs)
    machines = load(Cluster, cluster, configs)
    if link is not None:
        links = machines.links and machines.links.model_copy(update={"rate": None})
        machines = machines.model_copy(update={"link_gbit": bits_per_second(link) / 1e9, "links": links})
    if nodes is not None:
        machines = machines.model_copy(update={"nodes": nodes})
    own_model = load(Model, model, configs)
    degrees = {k: v for k, v in (parallel or {}).items() if v is not None}
    batches = {k: v for k, v in (training or {}).items() if v is not None}
    # shards are asked for, and never taken from an experiment that happens to be about them
    plain = found.training.model_dump(exclude=SHARDS) if found else {"iterations": ITERATIONS, "micro_batch": 4}
    plain |= batches
    full = plain.get("shard") == "full"
    if full:
        degrees = {"tensor": 1, "pipeline": 1} | degrees
    elif found:
        known = found.parallel.model_dump(exclude={"data"} if degrees or nodes else None)
        degrees = known | degrees
    degrees = _degrees(degrees, own_model, machines)
    plain.setdefault("global_batch", MICRO_BATCHES * plain["micro_batch"] * degrees["data"])
    return validate(
        RunSpec,
        {
            "model": own_model.model_dump(),
            "method": load(Method, "dense", configs).model_dump(),
            "corpus": {"name": "any", "source": "hub", "dataset": "any", "tokenizer": {"kind": "gpt2"}},
            "cluster": machines.model_dump(),
            "parallel": degrees,
            "training": plain,
            "seed": 1,
            "loop": "ddp" if full else "megatron",
        },
        f"{model} on {cluster}",
    )


def at_sites(sites: int, nodes: int | None, parallel: Mapping[str, int | None]) -> dict[str, int | None]:
    """Degrees where every node is a site with a replica of its own, or several: stages do not cross sites.

    Raises `UserError` if something else is asked for.
    """
    if nodes is not None:
        raise UserError(f"--sites {sites} --nodes {nodes}: a site is a node of the cluster's file; leave --nodes out")
    if (parallel.get("pipeline") or 1) > 1:
        raise UserError(
            f"--sites {sites} --pipeline {parallel['pipeline']}: every site has whole replicas; leave --pipeline out, "
            "or use --nodes for stages at several sites"
        )
    return {**parallel, "pipeline": 1}


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


def _experiment(model: str, cluster: str, configs: Path) -> Experiment | None:
    every = (load(Experiment, name, configs) for name in available(Experiment, configs))
    return next((e for e in every if model in e.models and e.cluster == cluster), None)


def _degrees(given: dict[str, int], model: Model, cluster: Cluster) -> dict[str, int]:
    """All three: by default a large model is split over its nodes' devices, and data parallelism is the rest."""
    parameters = LAYER_PARAMETERS * model.num_layers * model.hidden_size**2
    tensor = given.get("tensor") or (cluster.processes_per_node if parameters >= TENSOR_FROM else 1)
    pipeline = given.get("pipeline") or 1
    data = given.get("data") or max(1, cluster.processes // (tensor * pipeline))
    return Parallel(tensor=tensor, pipeline=pipeline, data=data).model_dump()
