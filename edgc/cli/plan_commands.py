"""`edgc plan` and `edgc recommend`: does compression pay on a cluster, and with which method?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgc.cli.list_commands import AsJson
from edgc.core.base.errors import UserError

Results = Annotated[Path, typer.Option(help="Folder that holds the published results, for measured loss gaps")]
ModelName = Annotated[str | None, typer.Option(help="Name of a file in configs/models; needed without --sites")]
ClusterName = Annotated[str | None, typer.Option(help="Name of a file in configs/clusters; needed without --sites")]
Sites = Annotated[
    int | None,
    typer.Option(min=2, help="Sites, each a node with whole replicas; adds the methods for distant sites"),
]
Link = Annotated[str | None, typer.Option(help="Rate of a node's link, e.g. 200gbit; default: the cluster's")]
Latency = Annotated[
    float | None,
    typer.Option(min=0, metavar="MS", help="Of a message between nodes, one way; default: the calibration's"),
]
Nodes = Annotated[int | None, typer.Option(min=1, help="Machines; default: the cluster's")]
Precision = Annotated[str | None, typer.Option(help="Of compute: fp32, tf32, bf16 …; default: the experiment's")]
GlobalBatch = Annotated[int | None, typer.Option(min=1, help="Sequences in a step")]
Iterations = Annotated[
    int | None, typer.Option(min=1, help="Steps of the run; default: the experiment's, or the paper's")
]


def plan(
    model: ModelName = None,
    cluster: ClusterName = None,
    sites: Sites = None,
    link: Link = None,
    latency: Latency = None,
    nodes: Nodes = None,
    stage_speed: Annotated[
        list[float] | None,
        typer.Option(help="Speed of a stage's devices, 1 = as calibrated; once for each stage, in order"),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Name of a file in configs/methods; repeat it for more")
    ] = None,
    precision: Precision = None,
    tensor: Annotated[int | None, typer.Option(min=1, help="Degree of tensor parallelism")] = None,
    pipeline: Annotated[int | None, typer.Option(min=1, help="Pipeline stages")] = None,
    data: Annotated[int | None, typer.Option(min=1, help="Degree of data parallelism")] = None,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Sequences in a micro-batch")] = None,
    global_batch: GlobalBatch = None,
    iterations: Iterations = None,
    shard: Annotated[
        str | None, typer.Option(help="What data-parallel ranks share out: none, optimizer (ZeRO-1), full (FSDP2)")
    ] = None,
    parameter_wire: Annotated[
        str | None, typer.Option(help="How sharded parameters travel: exact, bf16, int8; default: exact")
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
    from edgc.report import plan as told
    from edgc.report.gaps import folders
    from edgc.report.nearest import nearest
    from edgc.suite.cluster.forecasts import forecast
    from edgc.suite.cluster.question import METHODS, SITE_METHODS, Question, chosen
    from edgc.suite.cluster.trajectory import ASSUMED, Recorded

    if timeline is not None:
        from edgc.report.timeline_figure import check_path

        check_path(timeline)
    batches = {"micro_batch": micro_batch, "global_batch": global_batch, "iterations": iterations}
    question = Question(
        *_named(model, cluster, sites), nodes, link, latency, precision, sites,
        parallel={"tensor": tensor, "pipeline": pipeline, "data": data},
        training=batches | {"shard": shard, "parameter_wire": parameter_wire},
        calibration=calibration,
        stage_speeds=stage_speed or (),
    )  # fmt: skip
    scenario = question.scenario(trajectory=Recorded.read(entropy) if entropy else ASSUMED)
    methods = chosen(method or (SITE_METHODS if sites else METHODS))
    if memory:
        rows = told.memory_rows(scenario, methods, usual=not method)
        typer.echo(json.dumps(rows, indent=1)) if as_json else told.show_memory(rows, scenario)
        return
    found = forecast(scenario, methods, usual=not method)
    if timeline is not None:
        from edgc.report.timeline_figure import write_timeline

        write_timeline(found.drawn(), timeline, scenario.words)
    published = results / "published"
    known = nearest(scenario, [each.method for each in found.methods], published, told.MARGIN)
    if as_json:
        typer.echo(json.dumps(told.plain(found, known), indent=1, ensure_ascii=False))
        return
    told.show(found, known)
    if not method:
        typer.echo("Not compared: all other methods. Name one with --method; `edgc recommend` weighs more of them.")
    if not folders(published):
        typer.echo(f"Note: no published results under {published}: our own loss gaps are missing; give --results")


def recommend(
    model: ModelName = None,
    cluster: ClusterName = None,
    sites: Sites = None,
    margin: Annotated[float, typer.Option(min=0, metavar="NATS", help="Loss gap that you accept")] = 0.02,
    link: Link = None,
    latency: Latency = None,
    nodes: Nodes = None,
    precision: Precision = None,
    global_batch: GlobalBatch = None,
    iterations: Iterations = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method to consider; repeat it for more; default: those of the page, or of sites"),
    ] = None,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Say which method to use on a cluster: predicted time beside measured loss gaps."""
    from edgc.report.recommend import recommend as advise
    from edgc.suite.cluster.question import Question

    lengths = {"global_batch": global_batch, "iterations": iterations}
    question = Question(*_named(model, cluster, sites), nodes, link, latency, precision, sites, training=lengths)
    found = advise(question, margin, method or (), results / "published")
    typer.echo(json.dumps(found.plain(), indent=1, ensure_ascii=False) if as_json else found.text())


def _named(model: str | None, cluster: str | None, sites: int | None) -> tuple[str, str]:
    """The names of both files, by default those of sites. Raises `UserError` if one is missing."""
    from edgc.suite.cluster.question import SITE_CLUSTER, SITE_MODEL

    if sites is not None:
        return model or SITE_MODEL, cluster or SITE_CLUSTER
    if model is None or cluster is None:
        raise UserError(
            f"--{'cluster' if model else 'model'} is missing: give --model and --cluster, names of files in "
            "configs/models and configs/clusters; only --sites has defaults for them"
        )
    return model, cluster
