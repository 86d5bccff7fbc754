"""What `edgc status` prints: a table an experiment, what each failed run says, or JSON records."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edgc.core.base.errors import UserError
from edgc.report.status.progress import STATES, RunProgress, Watched, choose, ended, read

STYLES = {
    "running": "cyan", "waiting": "dim", "timeout": "yellow", "stopped": "yellow", "done": "green",
    "diverged": "magenta", "cancelled": "yellow", "failed": "bold red",
}  # fmt: skip
QUIET = ("waiting", "done", "diverged", "cancelled")  #: neither move nor need anybody
UNLIMITED = 10_000  # columns: a file or a pipe has no edge, so that a run stays on one line there


def report(names: Sequence[str], results: Path, as_json: bool, seconds: float | None) -> int:
    """Print the progress of these experiments, all without names; `seconds`: draw again so often until all ended.

    Returns the exit code: 1 if a run failed. Raises `UserError` on bad input.
    """
    if as_json and seconds is not None:
        raise UserError("--json and --watch exclude each other; call `edgc status --json` repeatedly")
    watched = choose(names, results)

    def look() -> list[Watched]:
        nonlocal watched
        now = time.time()
        found = [read(experiment, results, now) for experiment in watched]
        if any(experiment.grows for experiment in found):
            watched = choose(names, results)  # for the next look
        return found

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = UNLIMITED
    found = look() if seconds is None else watch(look, seconds, console)
    if as_json:
        print_json(found)
    else:
        print_tables(found, console, results)
    return 1 if any(run.state == "failed" for experiment in found for run in experiment.runs) else 0


def print_json(experiments: Iterable[Watched]) -> None:
    """A list with one record per run on stdout; experiments whose runs are not known are named on stderr."""
    experiments = list(experiments)
    records = [asdict(run) for experiment in experiments for run in experiment.runs]
    typer.echo(json.dumps(records, indent=1, ensure_ascii=False))
    for experiment in experiments:
        if experiment.problem:
            typer.echo(f"{experiment.name}: {experiment.problem}", err=True)


def print_tables(experiments: Sequence[Watched], console: Console, results: Path) -> None:
    """Print everything once. Paths and messages are left to the terminal to wrap, so that they can be copied."""
    nothing = Text(f"no experiment has runs in {results}")
    console.print(view(experiments, console.width) if experiments else nothing, soft_wrap=True)


def watch(look: Callable[[], list[Watched]], seconds: float, console: Console) -> list[Watched]:
    """Look and draw every `seconds` on a screen of its own, until all runs ended or Ctrl-C. Returns the last look."""
    found = look()
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=True) as live:
        while not ended(found):
            live.update(fitting(found, console), refresh=True)
            time.sleep(seconds)
            found = look()
    return found


def fitting(experiments: Sequence[Watched], console: Console) -> RenderableType:
    """The view; where the screen is too low for it, without runs that only need counting, or without any."""
    shown = view(experiments, console.width)
    for hidden in (QUIET, STATES):
        if len(console.render_lines(shown, console.options.update(height=None))) > console.height:
            shown = view(experiments, console.width, hidden)
    return shown


def view(experiments: Iterable[Watched], width: int, hidden: Collection[str] = ()) -> Group:
    """A table, a summary and notes an experiment, in `width` columns. Runs in `hidden` states are only counted."""
    parts: list[RenderableType] = []
    for experiment in experiments:
        parts += [Text(), *_experiment(experiment, width, hidden)]
    return Group(*parts[1:])


def _experiment(experiment: Watched, width: int, hidden: Collection[str]) -> Iterator[RenderableType]:
    yield Text(experiment.name, style="bold")
    if experiment.problem:
        yield Text(experiment.problem, style="yellow")
        return
    if shown := [run for run in experiment.runs if run.state not in hidden]:
        yield _table(shown, width)
    yield Text(summary(experiment.runs))
    if experiment.grows:
        yield Text(f"at most {experiment.at_most} runs: seeds are added until verdicts are decided")
    for run in experiment.runs:
        yield from _notes(run)


def summary(runs: Sequence[RunProgress]) -> str:
    """How many runs are in which state, e.g. `24 runs: 3 running, 20 done, 1 failed`."""
    counts = dict.fromkeys(STATES, 0) | Counter(run.state for run in runs)  # in their order
    total = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
    return f"{total}: {', '.join(f'{count} {state}' for state, count in counts.items() if count)}"


def _notes(run: RunProgress) -> Iterator[Text]:
    if run.state == "failed":
        first = (run.message.splitlines() or ["no message"])[0]
        yield Text(f"{run.run_id}: {first}", style=STYLES["failed"])
        yield Text(f"  log: {run.log}")
    elif run.stop:
        yield Text(f"{run.run_id}: was asked to stop ({run.stop})")


def _table(runs: Sequence[RunProgress], width: int) -> Table:
    """One line per run where that fits, else two, the id on the first: it is never cut off."""
    cells = [_cells(run) for run in runs]
    names = [name for name in cells[0] if any(row[name].plain for row in cells)]  # a column has something to say
    rows = [[Text(name) for name in names], *([row[name] for name in names] for row in cells)]
    widths = [max(cell_len(row[column].plain) for row in rows) for column in range(len(names))]
    ids = ["run", *(run.run_id for run in runs)]
    longest = max(map(len, ids))
    fits = longest + sum(2 + own for own in widths) <= width
    head, *lines = (
        Text(name.ljust(longest) if fits else f"{name}\n").append_text(_in_columns(row, widths))
        for name, row in zip(ids, rows, strict=True)
    )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(head, no_wrap=True)
    for line in lines:
        table.add_row(line)
    return table


def _cells(run: RunProgress) -> dict[str, Text]:
    loss = run.validation_loss if run.state == "done" else run.loss
    texts = {
        "step": f"{run.step}/{run.iterations}",
        "loss": "" if loss is None else f"{loss:.4f}",
        "left": duration(run.seconds_left),
        "job": run.slurm_job_id or "",
        "seen": duration(run.seconds_silent),
    }
    return {"state": Text(run.state, STYLES.get(run.state, ""))} | {name: Text(text) for name, text in texts.items()}


def duration(seconds: float | None) -> str:
    """Two units at most, e.g. `45s`, `12m`, `3h05m`, `2d04h`; empty for None."""
    if seconds is None:
        return ""
    if round(seconds) < 60:
        return f"{round(seconds)}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 24 else f"{hours // 24}d{hours % 24:02}h"


def _in_columns(cells: Iterable[Text], widths: Iterable[int]) -> Text:
    line = Text()
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        cell = cell.copy()
        cell.align("right" if number else "left", width)  # the state stands first
        line.append("  ").append_text(cell)
    return line
