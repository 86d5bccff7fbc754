"""Write a table or figure of a study, by its name."""

from __future__ import annotations

from pathlib import Path

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_text
from edgc.report import pictures, render
from edgc.report.selection import figure_named, figures_of, table_named, tables_of
from edgc.report.study import Study, counts, hardware
from edgc.report.timed_steps import spoken
from edgc.suite.config.timing import Timing


def write_table(name: str, study: Study, out: Path) -> None:
    """Write `<out>/<name>.csv` and `.md`. Raises `UserError` if the study has none of it."""
    table = table_named(_known("table", name, tables_of(study.experiment)))
    numbers = table.build(study)
    caption, note = table.captions(study.experiment), f"{_setting(study)}."
    render.write(out, name, table.title, numbers, table.present(numbers), caption, note, table.words(numbers))


def write_figure(name: str, study: Study, out: Path) -> None:
    """Write `<out>/<name>.svg`, `.png` and `.csv` (what is plotted). Raises `UserError` if the study has none."""
    own = figure_named(_known("figure", name, figures_of(study.experiment)))
    data = own.build(study)
    drawn = pictures.picture(own, data, f"{_setting(study)}.")
    pictures.write(drawn, out / f"{name}.svg", out / f"{name}.png")
    write_text(
        out / f"{name}.csv", data.to_csv(index=False, float_format="%.9g")
    )  # more digits only make published files large


def _known(kind: str, name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise UserError(f"{kind} {name!r}: this experiment has {', '.join(names)}")
    return name


def _setting(study: Study) -> str:
    """What tells a table or picture apart from others: experiment, models, n, hardware."""
    if study.experiment.mode == "simulate":
        return _assumed(study)
    runs, timing = study.frames.runs, study.experiment.timing
    models = ", ".join(runs["model"].unique())
    cells = f", {_rounds(timing)} rounds × {timing.steps} steps a rate" if timing else ""
    return f"Experiment {study.experiment.name}: {models}, {counts(runs)}{cells}, {hardware(runs)}"


def _rounds(timing: Timing) -> str:
    """Rounds at all rates, and in brackets where there are others: `2`, or `2 (not limited: 6)`."""
    others = ", ".join(f"{spoken(rate)}: {count}" for rate, count in (timing.rounds_at or {}).items())
    return f"{timing.rounds} ({others})" if others else str(timing.rounds)


def _assumed(study: Study) -> str:
    """The same of what was simulated."""
    rows = study.frames.forecasts
    rates = ", ".join(f"{name} ({source})" for name, source in rows.groupby("calibration")["source"].first().items())
    models = ", ".join(rows["model"].unique())
    return f"Experiment {study.experiment.name}: {models}, simulated with rates of {rates}; nothing was measured"
