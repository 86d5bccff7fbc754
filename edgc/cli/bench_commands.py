"""`edgc bench`: what operations, coding and engines take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Time the package's own operations and engines.")


@app.command()
def ops(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="CSV to write; the figure goes beside it")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="gpt2-124m only, and few rounds")] = False,
) -> None:
    """Time an exchange's operations against other ways to do them."""
    from edgc.suite.training.bench.ops import run

    code = run(device, out, quick)
    if out is not None:
        from edgc.report.bench_figure import write_bench_figure

        write_bench_figure(out)
    sys.exit(code)


@app.command()
def engines(
    model: Annotated[str, typer.Option(help="File in configs/models")] = "gpt2-nano",
    method: Annotated[list[str] | None, typer.Option(help="File in configs/methods; repeat it for more")] = None,
    replicas: Annotated[int, typer.Option(min=2, help="Data-parallel replicas")] = 4,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a run that count")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each")] = 5,
    out: Annotated[Path | None, typer.Option(help="CSV to write; the table goes beside it")] = None,
) -> None:
    """Replicas in one process (loop: stacked) beside a process each under megatron: losses, bytes, core-seconds."""
    from edgc.suite.training.bench.engines import run

    run(model, method or ["dense"], replicas, steps, rounds, out)


@app.command()
def coding(
    methods: Annotated[
        list[str] | None, typer.Argument(help="Files in configs/methods; others are compared with the first")
    ] = None,
    model: Annotated[str, typer.Option(help="File in configs/models")] = "gpt2-nano",
    ranks: Annotated[int, typer.Option(min=2, help="Of the group")] = 4,
    rank: Annotated[int, typer.Option(min=1, help="Of every matrix")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Exchanges of each")] = 40,
) -> None:
    """Seconds that one rank computes for an exchange by methods of low rank, in turns, on one core."""
    from edgc.suite.training.bench.coding import run

    run(model, methods or ["powersgd", "ramp"], ranks, rank, rounds)
