"""Which tables and figures an experiment has: those of its mode, and those that its file names. And where each is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgc.core.base.errors import UserError
from edgc.report import figures, tables
from edgc.report.figures import FIGURES, MORE_FIGURES, PREDICTED_FIGURES, SIMULATED_FIGURES, TIME_FIGURES
from edgc.report.tables import MORE_TABLES, PREDICTED_TABLES, SIMULATED_TABLES, TABLES, TIME_TABLES
from edgc.suite.config import Experiment

if TYPE_CHECKING:
    from edgc.report.figure import Figure
    from edgc.report.table import Table

ALL_TABLES = TABLES + TIME_TABLES + PREDICTED_TABLES + SIMULATED_TABLES + MORE_TABLES


def tables_of(experiment: Experiment) -> tuple[str, ...]:
    """Names of the experiment's tables. Raises `UserError` if it names one that there is not."""
    own = {"train": TABLES, "time": TIME_TABLES, "simulate": SIMULATED_TABLES}[experiment.mode]
    own += PREDICTED_TABLES if experiment.predict_from else ()
    return own + _named(experiment, "tables", experiment.tables, MORE_TABLES)


def figures_of(experiment: Experiment) -> tuple[str, ...]:
    """Names of the experiment's figures. Raises `UserError` if it names one that there is not."""
    own = {"train": FIGURES, "time": TIME_FIGURES, "simulate": SIMULATED_FIGURES}[experiment.mode]
    own += PREDICTED_FIGURES if experiment.predict_from else ()
    return own + _named(experiment, "figures", experiment.figures, MORE_FIGURES)


def _named(experiment: Experiment, setting: str, names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [name for name in names if name not in more]:
        raise UserError(
            f"experiment {experiment.name}: {setting} {', '.join(unknown)}: allowed are {', '.join(more)}, "
            "beside those of its mode"
        )
    return names


def figure_named(name: str) -> Figure:
    """A figure. Its module, which takes long to import, is imported now."""
    return _declared(figures, name)


def table_named(name: str) -> Table:
    """A table, likewise."""
    return _declared(tables, name)


def _declared(room: Any, name: str) -> Any:
    module = next((module for module, names in room.MODULES.items() if name in names), name)
    return getattr(import_module(f"{room.__name__}.{module}"), name.upper())
