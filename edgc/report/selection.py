"""Which tables and figures there are, where each is declared, and which of them an experiment has."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgc.core.base.errors import UserError
from edgc.suite.config import Experiment

if TYPE_CHECKING:
    from edgc.report.figure import Figure
    from edgc.report.table import Table

Names = Mapping[str, Mapping[str, str]]
TRAIN, TIME, SIMULATE = "train", "time", "simulate"  #: had by every experiment of this mode,
PREDICTED, NAMED = "predicted", "named"  #: … by every timing that the cluster model predicted, by those that name it,
ALONE = "alone"  #: … by none: a command of its own publishes it

#: By module of `edgc.report.tables`: what it declares, in capitals, and which experiments have that.
TABLES: Names = {
    "ranks": {"variants": NAMED, "clamps": NAMED},
    "times": {"latency": TRAIN, "time": TRAIN, "time_to_loss": NAMED},
    "accuracy": {"accuracy": TRAIN},
    "right_answers": {"zero_shot": NAMED},
    "paper": {"paper": NAMED},
    "parts": {"parts": NAMED},
    "samples": {"sampling": NAMED, "window": NAMED},
    "observations": {"observations": NAMED},
    "normality": {"normality": NAMED, "error_law": NAMED},
    "kinds": {"kinds": NAMED},
    "learning_rates": {"learning_rates": NAMED},
    "expenses": {"layout_costs": NAMED, "method_costs": NAMED},
    "adaptation": {"adaptation": NAMED},
    "comparisons": {"credit": NAMED, "decisions": NAMED, "replicas": NAMED},
    "rungs": {"ladder": NAMED},
    "choice": {"choice": NAMED},
    "links": {"links": TIME, "links_bytes": TIME, "links_conditions": TIME},
    "predicted": {"predicted": PREDICTED},
    "others": {"others_predicted": ALONE},
    "cluster_forecasts": {"forecast": SIMULATE, "claims": NAMED, "bandwidth": NAMED},
}

#: The same of `edgc.report.figures`.
FIGURES: Names = {
    "curves": {"loss_step": TRAIN, "loss_bytes": TRAIN, "loss_seconds": TRAIN, "loss_on_links": NAMED},
    "exposed": {"exposed": TIME},
    "step_times": {"latency": TRAIN, "step_breakdown": TRAIN, "step_parts_on_links": TIME},
    "gradient_entropy": {
        "entropy_rank": TRAIN,
        "observed_entropy": NAMED,
        "window_correlation": NAMED,
        "sampling_time": NAMED,
        "sampling_error": NAMED,
    },
    "gaps_by_regime": dict.fromkeys(("gap_by_size", "gap_by_steps", "gap_by_tokens"), NAMED),
    "loss_gaps": {"gap_bytes": NAMED, "gap_replicas": NAMED, "parts": NAMED},
    "fronts": {"pareto_bytes": NAMED, "gap_on_links": NAMED},
    "gradient_matrices": dict.fromkeys(
        ("gradient_histograms", "spectra", "low_rank_error", "error_prediction", "gradient_correlation", "normality"),
        NAMED,
    ),
    "cluster_model": {
        "saving_by_link": SIMULATE,
        "saving_by_rank": SIMULATE,
        "utilisation": NAMED,
        "who_wins_where": NAMED,
        "predicted_measured": PREDICTED,
    },
}

#: They show a training's seconds as those of a cluster: not of one whose replicas share a process.
SECONDS = frozenset(("latency", "time", "time_to_loss", "paper", "loss_seconds", "step_breakdown"))


def names(room: Names, who: str | None = None) -> tuple[str, ...]:
    """All of a room, or those that `who` has."""
    return tuple(name for own in room.values() for name, had in own.items() if who in (None, had))


def tables_of(experiment: Experiment) -> tuple[str, ...]:
    """Names of the experiment's tables. Raises `UserError` if it names one that there is not."""
    return _of(experiment, "tables", experiment.tables, TABLES)


def figures_of(experiment: Experiment) -> tuple[str, ...]:
    """Names of the experiment's figures. Raises `UserError` if it names one that there is not."""
    return _of(experiment, "figures", experiment.figures, FIGURES)


def _of(experiment: Experiment, setting: str, named: tuple[str, ...], room: Names) -> tuple[str, ...]:
    more = names(room, NAMED)
    if unknown := [name for name in named if name not in more]:
        raise UserError(
            f"experiment {experiment.name}: {setting} {', '.join(unknown)}: allowed are {', '.join(more)}, "
            "beside those of its mode"
        )
    left_out = SECONDS if experiment.stacked else frozenset()
    if timed := [name for name in named if name in left_out]:
        raise UserError(
            f"experiment {experiment.name}: {setting} {', '.join(timed)}: with loop: stacked seconds are those of one "
            "process for all replicas, and no cluster's; leave it out, or use loop: megatron"
        )
    predicted = names(room, PREDICTED) if experiment.predict_from else ()
    return tuple(name for name in (*names(room, experiment.mode), *predicted, *named) if name not in left_out)


def figure_named(name: str) -> Figure:
    """A figure. Its module, which takes long to import, is imported now."""
    return _declared("figures", FIGURES, name)


def table_named(name: str) -> Table:
    """A table, likewise."""
    return _declared("tables", TABLES, name)


def _declared(room: str, modules: Names, name: str) -> Any:
    module = next(module for module, own in modules.items() if name in own)
    return getattr(import_module(f"edgc.report.{room}.{module}"), name.upper())
