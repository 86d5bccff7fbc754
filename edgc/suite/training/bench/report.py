"""What `edgc bench ops` prints and writes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_json, write_text
from edgc.core.base.provenance import manifest_base
from edgc.suite.training.bench.ops import STAGES, measure, shape_sets
from edgc.suite.training.bench.rivals import group_of_one

COLUMNS = ["op", "shape_set", "shape", "dtype", "rank", "implementation", "median_ms", "p20_ms", "p80_ms"]
COLUMNS += ["gb_per_s", "copy_fraction", "device", "threads", "torch", "triton"]


def run(device: str, out: Path | None, quick: bool, names: list[str] | None) -> int:
    """Measure, print and write. Returns the exit code: 1 if a gate was not green. Raises `UserError` on bad input."""
    known = [name for name, *_ in STAGES]
    if unknown := set(names or ()) - set(known):
        raise UserError(f"--shapes {', '.join(sorted(unknown))}: allowed: {', '.join(known)}")
    if device not in ("cpu", "cuda"):
        raise UserError(f"--device {device}: allowed: cpu, cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "--device cuda: torch sees no GPU here; `edgc doctor` says what is installed, or use --device cpu"
        )
    if out is not None:  # first: of what was there when it began
        write_json(out.with_suffix(".manifest.json"), manifest_base(device))  # type: ignore[arg-type]
    failures: list[str] = []
    rows = []
    for shape_set in shape_sets(names or (known[:1] if quick else known)):
        with group_of_one(device):
            rows.extend(measure(shape_set, device, quick, failures.append))
        data = pd.DataFrame(rows, columns=COLUMNS).astype({"rank": "Int64"})
        _show(data[data["shape_set"] == shape_set.name])
        if out is not None:  # after every set: the next one may not fit into memory
            write_text(out, data.to_csv(index=False, float_format="%.6g"))
    for failure in failures:
        typer.echo(failure, err=True)
    return 1 if failures else 0


def _show(data: pd.DataFrame) -> None:
    if data.empty:
        return
    first = data.iloc[0]
    title = f"{first['shape_set']}: {first['shape']}, {first['dtype']}; {first['device']}"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name, width in (("operation", 16), ("rank", 4), ("by", 11)):  # names are never cut off
        table.add_column(name, min_width=width, no_wrap=True, justify="right" if name == "rank" else "left")
    for name in ("ms", "20–80 %", "of copy", "× ours"):
        table.add_column(name, justify="right", no_wrap=True)
    for _, rows in data.groupby(["op", "rank"], sort=False, dropna=False):
        ours = rows[rows["implementation"].str.startswith("edgc-")]["median_ms"].min()
        for number, row in enumerate(rows.to_dict("records")):
            named = (row["op"], "" if pd.isna(row["rank"]) else str(row["rank"])) if number == 0 else ("", "")
            band = f"{_number(row['p20_ms'])}–{_number(row['p80_ms'])}"
            speed = (f"{row['copy_fraction']:.0%}", f"{row['median_ms'] / ours:.2f}")
            table.add_row(*named, row["implementation"], _number(row["median_ms"]), band, *speed)
    Console(highlight=False).print(table)


def _number(value: float) -> str:
    """At least three significant digits, never with an exponent."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
