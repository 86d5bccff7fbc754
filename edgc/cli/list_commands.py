"""`edgc methods` and `edgc experiments`: what there is, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgc.core.base.errors import EXIT_BAD_INPUT, UserError
from edgc.suite.config import Experiment, Method, available, load, load_experiment, paths

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts")]
Results = Annotated[Path, typer.Option(help="Folder that holds the results of all experiments")]


def methods(
    name: Annotated[str | None, typer.Argument(help="A method: its files and its published numbers, too")] = None,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """List the methods, or one: what it does, what it is made of, where its algorithm stands.

    Exit code 2: a method from outside could not be read, or a package of them.
    """
    from edgc.core.settings.method import MECHANISMS
    from edgc.core.settings.outside import FOUND
    from edgc.core.settings.reading import BROKEN

    if name is not None:
        from edgc.report.about import about

        _show([about(load(Method, name), results / "published")], as_json)
        return
    rows, unread, brought = [], [*BROKEN], {method: each for each in FOUND for method in each.methods}
    for name in available(Method):
        try:
            method = load(Method, name)
        except UserError as error:
            if name not in brought:
                raise
            unread.append(f"methods of {brought[name].name}: {error}")
            continue
        aggregator = MECHANISMS[method.aggregator.name]
        rows.append(
            {
                "name": name,
                "title": method.title,
                "source": method.source,
                "synchronisation": method.synchronisation.name,
                "aggregator": method.aggregator.name,
                "policy": method.policy.name,
                "state": aggregator.state_size,
                "payload": aggregator.payload_formula,
                "summary": method.summary,
            }
            | ({"from": f"{brought[name].name} {brought[name].version}"} if name in brought else {})
        )
    _show(rows, as_json, ["title", "from"])
    for why in unread:
        typer.echo(f"error: {why}", err=True)
    if unread:
        raise typer.Exit(EXIT_BAD_INPUT)


def experiments(
    name: Annotated[str | None, typer.Argument(help="An experiment: its methods, runs and file, too")] = None,
    as_json: AsJson = False,
) -> None:
    """List the experiments by folder with the minutes that each takes, or one: what it shows, and with what."""
    places = paths(Experiment)
    rows = []
    for each in sorted(places, key=places.__getitem__) if name is None else [name]:
        e = load_experiment(each)
        rows.append(
            {"name": each, "title": e.title, "file": str(places[each])}
            | {"shows": e.shows, "minutes": e.minutes, "mode": e.mode}
            | {"cluster": e.cluster, "methods": e.names, "runs": len(e.runs())}
            | ({"runs_at_most": len(e.runs_at_most())} if e.until_decided else {})
        )
    _show(rows, as_json, ["minutes", "title"] if name is None else [])


def _show(rows: list[dict[str, Any]], as_json: bool, columns: Sequence[str] = ()) -> None:
    """With `columns` a line a row, of its name and these; without, all of it."""
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    console = Console(highlight=False, markup=False)
    if columns:
        table = Table.grid(padding=(0, 2))
        for key in ("name", *columns):
            table.add_column(key, overflow="fold", justify="right" if key == "minutes" else "left")
        for row in rows:
            table.add_row(Text(row["name"], "bold"), *(_words(row.get(key, "")) for key in columns))
        console.print(table)
        return
    for row in rows:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for key in (key for key in row if key not in ("name", "title")):
            grid.add_row(f"  {key}", _words(row[key]))
        console.print(Text.assemble((row["name"], "bold"), f" – {row['title']}"), grid, "")


def _words(value: Any) -> str:
    """A list of names with commas, of longer texts with a line each; a number without needless digits."""
    if isinstance(value, list):
        return ("\n" if any(" " in each for each in value) else ", ").join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
