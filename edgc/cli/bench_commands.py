"""`edgc bench …`: studies of the package's own operations, and of codes on recorded gradients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgc.suite.config import load, load_experiment

if TYPE_CHECKING:
    import pandas as pd

    from edgc.report.bench_table import BenchTable

app = typer.Typer(no_args_is_help=True, help="Time the package's own operations.")

ExperimentArgument = Annotated[str, typer.Argument(help="Name of a file in configs/experiments")]
Results = Annotated[Path, typer.Option(help="Folder that holds the results of all experiments")]
TableOut = Annotated[Path | None, typer.Option("--out", help="CSV to write; words and table go beside it as Markdown")]
CorpusFolder = Annotated[Path, typer.Option("--corpus", help="Folder that `edgc prepare` wrote")]


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
    from edgc.suite.training.bench.report import run

    code = run(device, out, quick, shapes)
    if out is not None:
        from edgc.report.bench_figure import write_bench_figure

        write_bench_figure(out)
    sys.exit(code)


@app.command()
def sketches(
    corpus: CorpusFolder,
    model: Annotated[str, typer.Option(help="Name of a file in configs/models")] = "gpt2-nano",
    ranks: Annotated[list[int] | None, typer.Option(min=2, help="Size of a group; repeat it for more")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of training before the exchange that is measured")] = 16,
    out: TableOut = None,
) -> None:
    """Hold sketches of recorded gradients against bf16 and plainer codes: unions, recovery, bytes."""
    import pandas as pd

    from edgc.report import sketch_table
    from edgc.suite.config import Model
    from edgc.suite.training.bench.sketches import study

    _begin_bench(out)
    rows = pd.DataFrame(study(load(Model, model), corpus, ranks or [2, 4, 8], steps))
    _end_bench(sketch_table, rows, out)


@app.command()
def owners(
    corpus: CorpusFolder,
    model: Annotated[str, typer.Option(help="Name of a file in configs/models")] = "gpt2-nano",
    ranks: Annotated[list[int] | None, typer.Option(min=2, help="Size of a group; repeat it for more")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of training, each of which is exchanged")] = 16,
    out: TableOut = None,
) -> None:
    """Bring recorded gradients to the ranks that own them, by TAGC and plainer codes: bytes, error, seconds."""
    import pandas as pd

    from edgc.report import owner_table
    from edgc.suite.config import Model
    from edgc.suite.training.bench.owners import study

    _begin_bench(out)
    rows = pd.DataFrame(study(load(Model, model), corpus, ranks or [2, 4, 8], steps))
    _end_bench(owner_table, rows, out)


@app.command()
def lossless(
    corpus: CorpusFolder,
    model: Annotated[str, typer.Option(help="Name of a file in configs/models")] = "gpt2-nano",
    steps: Annotated[
        list[int] | None, typer.Option(min=1, help="Step of training to look at, from 1; repeat it for more")
    ] = None,
    out: TableOut = None,
) -> None:
    """Code what ranks would send without loss: gradients, factors and quantised codes, of recorded gradients."""
    import pandas as pd

    from edgc.report import lossless_table
    from edgc.suite.config import Model
    from edgc.suite.training.bench.entropy_coding import study

    _begin_bench(out)
    rows = pd.DataFrame(study(load(Model, model), corpus, sorted(set(steps or [1, 20, 100, 300]))))
    _end_bench(lossless_table, rows, out)


@app.command()
def noise(
    experiment: ExperimentArgument,
    corpus: CorpusFolder,
    results: Results = Path("results"),
    out: TableOut = None,
) -> None:
    """Say which estimate of a run's loss narrows a loss gap's interval most for its cost, from finished runs."""
    from edgc.report import noise_table
    from edgc.suite.training.bench.noise import study

    _begin_bench(out)
    _end_bench(noise_table, study(load_experiment(experiment), results, corpus), out)


def _begin_bench(out: Path | None) -> None:
    """Write the manifest of a study first: of what is there when it begins."""
    from edgc.core.base import files
    from edgc.core.base.provenance import manifest_base

    if out is not None:
        files.write_json(out.with_suffix(".manifest.json"), manifest_base("cpu"))


def _end_bench(table: BenchTable, rows: pd.DataFrame, out: Path | None) -> None:
    """Print what a study found, and write it where that is asked for."""
    from edgc.report import bench_table

    typer.echo(bench_table.text(table, rows))
    if out is not None:
        bench_table.write(table, rows, out)
