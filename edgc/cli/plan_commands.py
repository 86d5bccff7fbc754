"""`edgc plan` and `edgc recommend`: does compression pay on a cluster, and with which method?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgc.core.base.errors import UserError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts")]
Results = Annotated[Path, typer.Option(help="Folder that holds the published results, for measured loss gaps")]
ModelName = Annotated[str | None, typer.Option(help="Name of a file in configs/models; needed without --sites")]
ClusterName = Annotated[str | None, typer.Option(help="Name of a file in configs/clusters; needed without --sites")]
Sites = Annotated[
    int | None,
    typer.Option(min=2, help="Sites, each a node with whole replicas; adds the methods for distant sites"),
]


def plan(
    model: ModelName = None,
    cluster: ClusterName = None,
    sites: Sites = None,
    link: Annotated[
        str | None, typer.Option(help="Rate of a node's link, e.g. 200gbit; default: the cluster's")
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(min=0, metavar="MS", help="Of a message between nodes, one way; default: the calibration's"),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Machines; default: the cluster's")] = None,
    stage_speed: Annotated[
        list[float] | None,
        typer.Option(help="Speed of a stage's devices, 1 = as calibrated; once for each stage, in order"),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Name of a file in configs/methods; repeat it for more")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of compute: fp32, tf32, bf16 …; default: the experiment's")
    ] = None,
    tensor: Annotated[int | None, typer.Option(min=1, help="Degree of tensor parallelism")] = None,
    pipeline: Annotated[int | None, typer.Option(min=1, help="Pipeline stages")] = None,
    data: Annotated[int | None, typer.Option(min=1, help="Degree of data parallelism")] = None,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Sequences in a micro-batch")] = None,
    global_batch: Annotated[int | None, typer.Option(min=1, help="Sequences in a step")] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Steps of the run")] = None,
    shard: Annotated[
        str | None, typer.Option(help="What data-parallel ranks share out: none, optimizer (ZeRO-1), full (FSDP2)")
    ] = None,
    parameter_wire: Annotated[
        str | None, typer.Option(help="How sharded parameters travel: exact, bf16, int8; default: the experiment's")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option(help="Name of a file in configs/calibrations; default: the devices'")
    ] = None,
    entropy: Annotated[
        Path | None, typer.Option(help="Folder of a run; policies then follow the entropy that it recorded")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Figure to draw (.svg, .png or .pdf): what every stage does in a step, and when")
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Say what fits a device instead, by stage")] = False,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Predict whether compression pays on a cluster. Nothing is run."""
    from edgc.report.site.gaps import published_gaps
    from edgc.suite.cluster import ask, show, show_memory
    from edgc.suite.cluster.plan import plan as predict
    from edgc.suite.cluster.trajectory import Parametric, Recorded

    if timeline is not None:
        from edgc.report.timeline_figure import check_path

        check_path(timeline)
    degrees = {"tensor": tensor, "pipeline": pipeline, "data": data}
    if sites is not None:
        degrees = ask.at_sites(sites, nodes, degrees)
    model, cluster = _named(model, cluster, sites)
    batches = {"micro_batch": micro_batch, "global_batch": global_batch, "iterations": iterations}
    shards = {"shard": shard, "parameter_wire": parameter_wire}
    spec = ask.question(model, cluster, link, degrees, batches | shards, nodes=sites or nodes)
    rates = ask.elsewhere(ask.calibration_of(spec.cluster, calibration), latency, stage_speed or ())
    trajectory = Recorded.read(entropy) if entropy else Parametric()
    compute = precision or spec.training.precision
    methods = ask.chosen(method or (ask.SITE_METHODS if sites else ask.METHODS))
    if memory:
        rows = show_memory.rows(spec, methods, rates, compute)
        typer.echo(json.dumps(rows, indent=1)) if as_json else show_memory.show(rows, spec, rates, compute)
        return
    found = predict(spec, methods, rates, trajectory, compute)
    if timeline is not None:
        from edgc.report.timeline_figure import write_timeline
        from edgc.suite.cluster.timeline import timeline as spans

        write_timeline(spans(spec, methods, rates, trajectory, compute), timeline, show.about(found, spec, compute))
    known = published_gaps(results / "published", replicas=spec.parallel.data)
    gaps = {name: asdict(gap) for name, gap in known.items()}
    if as_json:
        typer.echo(json.dumps(show.plain(found, spec, rates, compute, gaps), indent=1, ensure_ascii=False))
    else:
        show.show(found, spec, rates, compute, trajectory.origin, gaps)


def recommend(
    model: ModelName = None,
    cluster: ClusterName = None,
    sites: Sites = None,
    margin: Annotated[float, typer.Option(min=0, metavar="NATS", help="Loss gap that you accept")] = 0.02,
    link: Annotated[
        str | None, typer.Option(help="Rate of a node's link, e.g. 200gbit; default: the cluster's")
    ] = None,
    latency: Annotated[
        float | None, typer.Option(min=0, metavar="MS", help="Of a message between nodes, one way")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Machines; default: the cluster's")] = None,
    precision: Annotated[str | None, typer.Option(help="Of compute; default: the experiment's")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method to consider; repeat it for more; default: those of the page, or of sites"),
    ] = None,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Say which method to use on a cluster: predicted time beside measured loss gaps."""
    from edgc.report.site import recommend as advice

    point = advice.Question(*_named(model, cluster, sites), nodes, link, latency, precision, sites)
    found = advice.recommend(point, margin, method or (), results / "published")
    typer.echo(json.dumps(found.plain(), indent=1, ensure_ascii=False) if as_json else found.text())


def _named(model: str | None, cluster: str | None, sites: int | None) -> tuple[str, str]:
    """The names of both files, by default those of sites. Raises `UserError` if one is missing."""
    from edgc.suite.cluster.ask import SITE_CLUSTER, SITE_MODEL

    if sites is not None:
        return model or SITE_MODEL, cluster or SITE_CLUSTER
    if model is None or cluster is None:
        raise UserError(
            f"--{'cluster' if model else 'model'} is missing: give --model and --cluster, names of files in "
            "configs/models and configs/clusters; only --sites has defaults for them"
        )
    return model, cluster
