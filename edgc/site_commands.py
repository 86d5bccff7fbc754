"""`edgc site` and `edgc compare`: published results as a page, and two methods side by side in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Write the page that answers, from published results.")

Results = Annotated[Path, typer.Option(help="Folder that holds the results of all experiments")]


@app.command()
def forecasts(results: Results = Path("results")) -> None:
    """Compute the forecasts that the page's question form answers from: half an hour."""
    from edgc.site.forecasts import write

    typer.echo(write(results / "published"))
