"""`edgc bench ops`: how long the package's own operations take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Time the package's own operations.")


@app.command()
def ops(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="CSV to write; the figure goes beside it")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="gpt2-124m only, and few rounds")] = False,
    shapes: Annotated[
        list[str] | None, typer.Option(help="Stage to time, e.g. gpt2-2.5b/TP4; repeat it for more; default: all")
    ] = None,
) -> None:
    """Time an exchange's operations against other ways to do them."""
    from edgc.suite.training.bench.ops import run

    code = run(device, out, quick, shapes)
    if out is not None:
        from edgc.report.bench_figure import write_bench_figure

        write_bench_figure(out)
    sys.exit(code)
