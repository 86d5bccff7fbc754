"""Write a table or figure of a study, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_text
from edgc.report import pictures, render
from edgc.report.figures import figure
from edgc.report.selection import figures_of, tables_of
from edgc.report.study import Study, counts, hardware
from edgc.report.timed_steps import spoken
from edgc.suite.config import Experiment
from edgc.suite.config.timing import Timing


def write_table(name: str, study: Study, out: Path) -> None:
    """Write `<out>/<name>.csv`, `.md` and `.html`. Raises `UserError` if the study has none of it."""
    table = _table(_known("table", name, tables_of(study.experiment))).TABLE
    numbers = table.build(study)
    caption, note = table.captions(study.experiment), f"{_setting(study)}."
    render.write(out, name, table.title, numbers, table.present(numbers), caption, note, table.words(numbers))


def write_figure(name: str, study: Study, out: Path) -> None:
    """Write `<out>/<name>.svg`, `.png` and `.csv` (what is plotted). Raises `UserError` if the study has none."""
    own = figure(_known("figure", name, figures_of(study.experiment)))
    data = own.build(study)
    drawn = pictures.picture(own, data, f"{_setting(study)}.")
    for kind in ("svg", "png"):
        pictures.write(drawn, out / f"{name}.{kind}")
    write_text(
        out / f"{name}.csv", data.to_csv(index=False, float_format="%.9g")
    )  # more digits only make published files large


def captions(experiment: Experiment) -> dict[str, str]:
    """What Snakemake's report says of the experiment's tables and figures, by rule: reStructuredText.

    What it shows, and what its columns, points and lines are.
    """
    found = {}
    for name in tables_of(experiment):
        module = _table(name)
        shows = (module.__doc__ or "").partition("\n")[0]
        found[f"table_{name}"] = _listed(shows, module.TABLE.captions(experiment))
    for name in figures_of(experiment):
        found[f"figure_{name}"] = _listed(figure(name).shows, figure(name).note)
    return found


def _listed(shows: str, what: Mapping[str, str]) -> str:
    return "\n".join([shows, "", *(f"- **{key}**: {text}." for key, text in what.items())]) + "\n"


def _table(name: str) -> ModuleType:
    return import_module(f"edgc.report.tables.{name}")


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
