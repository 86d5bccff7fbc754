"""`edgc site`, `edgc compare`, `edgc evidence`: what is published, as a page, of two methods, of one at any size."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from edgc.cli.list_commands import AsJson, Results
from edgc.core.base.errors import UserError

app = typer.Typer(invoke_without_command=True, help="Write the page that answers: results/site/index.html.")


@app.callback()
def site(
    context: typer.Context,
    experiment: Annotated[
        str | None,
        typer.Option("--experiment", "-e", help="Only this experiment's results: <results>/<name>/index.html"),
    ] = None,
    results: Results = Path("results"),
) -> None:
    """Write the page that answers, from results/published, as one file that needs no network."""
    if context.invoked_subcommand is not None:
        if experiment or results != Path("results"):
            raise UserError(f"edgc site {context.invoked_subcommand}: its options stand after it, --results too")
        return
    from edgc.report.site.page import write_page, write_site

    page, headline = write_page(experiment, results) if experiment else write_site(results)
    typer.echo(headline)
    typer.echo(page)


@app.command()
def forecasts(results: Results = Path("results")) -> None:
    """Compute the forecasts that the page's question form answers from: half an hour."""
    from edgc.report.site.form import write

    typer.echo(write(results / "published"))


@app.command()
def speeds(results: Results = Path("results")) -> None:
    """Predict the step times and links that others published, and publish both side by side: half a minute."""
    from edgc.report.tables.others import write

    typer.echo(write(results / "published"))


@app.command()
def ledger(results: Results = Path("results")) -> None:
    """Write the ledger of EDGC's replication, from configs/reference and results/published, into docs/edgc.md."""
    from edgc.report.ledger import write_page
    from edgc.report.reference_values import EDGC, TAGC, load_reference

    page = Path("docs/edgc.md")
    write_page([load_reference(EDGC), load_reference(TAGC)], results / "published", page)
    typer.echo(page)


@app.command()
def paper_figures(results: Results = Path("results")) -> None:
    """Make all tables and figures of the ledger again, from archived runs and what was published: minutes."""
    from edgc.report.paper_figures import make
    from edgc.report.reference_values import load_reference

    out = results / "paper-figures"
    archived = make(load_reference(), results, out)
    typer.echo(f"from archived runs: {', '.join(archived)}; all others from what was published\n{out}/index.md")


@app.command()
def gaps(results: Results = Path("results")) -> None:
    """Index the published loss gaps for `edgc plan` and `edgc recommend`. `edgc publish` does it, too."""
    from edgc.report.gaps import write_index

    typer.echo(write_index(results / "published"))


def compare(
    one: Annotated[str, typer.Argument(metavar="A", help="A method of the experiment")],
    other: Annotated[str, typer.Argument(metavar="B", help="Another one")],
    experiment: Annotated[str, typer.Option("--experiment", "-e", help="Name of an experiment in configs/experiments")],
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Hold two methods of an experiment against each other: time, bytes, loss.

    Of the results on this machine, or where there are none, of those that are
    published.
    """
    from edgc.report.site.compare import MOST
    from edgc.report.site.compare import compare as hold
    from edgc.report.site.contents import one as read

    places = [results / experiment, results / "published" / experiment]
    found = next((place for place in places if (place / "tables").is_dir()), None)
    if found is None:
        raise UserError(f"experiment {experiment}: no tables in {' or '.join(map(str, places))}; run it first")
    both = hold(one, other, read(found, experiment))
    if as_json:
        typer.echo(json.dumps(asdict(both), indent=1, ensure_ascii=False))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in (f"Experiment {experiment}", *both.titles, "The second against the first"):
        table.add_column(heading, overflow="fold")
    for row in both.rows[:MOST]:
        table.add_row(row.what, row.one, row.other, row.difference)
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(both.sentence)


def evidence(
    method: Annotated[str | None, typer.Argument(help="A method; default: say which ones have evidence")] = None,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Print what is known of a method's loss gap at any size: our published results, and what others published."""
    from edgc.report import evidence as known

    found = known.everything(results / "published")
    if method is not None:
        found = known.evidence(method, found)
    if as_json:
        typer.echo(json.dumps(found if method else known.counts(found), indent=1, ensure_ascii=False))
    elif method:
        known.show(found)
    else:
        known.show_counts(found)
