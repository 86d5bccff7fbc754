"""An experiment has the tables and figures of every experiment and those that its file names, and no others."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from edgc.core.base.errors import UserError
from edgc.core.comm.telemetry import REGIONS
from edgc.report.selection import (
    FIGURES,
    SECONDS,
    TABLES,
    TIME,
    TRAIN,
    figure_named,
    figures_of,
    names,
    table_named,
    tables_of,
)
from edgc.report.table import Column
from edgc.report.write import write_figure, write_table
from edgc.suite.config import Experiment, available, load_experiment
from tests.fixtures.sessions import timed_experiment
from tests.fixtures.studies import run, study, tiny_experiment

ROOT = Path(__file__).parents[3]
#: Columns that say what they are by themselves, or have one line together.
PLAIN = {"Model", "Method", "Status", "Hardware", "Rate", *REGIONS}


def naming(tables=(), figures=()):
    return tiny_experiment().model_copy(update={"tables": tables, "figures": figures})


def test_a_name_is_every_experiments_or_some():
    for room in (TABLES, FIGURES):
        assert len(set(names(room))) == len(names(room))


def test_mode_time_has_tables_and_figures_of_its_own():
    timed = timed_experiment(("dense", "edgc"), ("10mbit", "none"))
    assert (tables_of(timed), figures_of(timed)) == (names(TABLES, TIME), names(FIGURES, TIME))
    more = timed.model_copy(update={"tables": ("clamps",)})
    assert tables_of(more) == (*names(TABLES, TIME), "clamps")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("table", name) for name in names(TABLES)),
        *(("figure", name) for name in names(FIGURES)),
    ],
)
def test_every_table_and_figure_says_what_it_shows_and_what_is_in_it(kind, name):
    own = figure_named(name) if kind == "figure" else table_named(name)
    assert own.title
    assert own.shows.partition("\n")[0].endswith((".", "?"))
    if kind == "figure":
        assert own.note
        return
    named = [key for key in own.columns if isinstance(key, str)]  # an ellipsis stands for any words
    for column, text in own.columns.items():
        if isinstance(column, Column) and column.name not in PLAIN:
            assert text or any(fnmatchcase(column.name, name.replace("…", "*")) for name in named), column.name


def test_an_experiment_adds_what_it_names():
    assert (tables_of(naming()), figures_of(naming())) == (names(TABLES, TRAIN), names(FIGURES, TRAIN))
    more = naming(("variants",), ("gap_bytes",))
    assert tables_of(more) == (*names(TABLES, TRAIN), "variants")
    assert figures_of(more) == (*names(FIGURES, TRAIN), "gap_bytes")


def test_seconds_of_replicas_in_one_process_are_not_shown():
    """They are of one core: as a step's time on a cluster they would mislead."""
    stacked = naming().model_copy(update={"loop": "stacked"})
    assert tables_of(stacked) == tuple(name for name in names(TABLES, TRAIN) if name not in SECONDS)
    assert not SECONDS & {*figures_of(stacked)}
    assert {*names(TABLES), *names(FIGURES)} >= SECONDS
    with pytest.raises(UserError, match=r"tables time_to_loss: with loop: stacked .*one process.*loop: megatron"):
        tables_of(stacked.model_copy(update={"tables": ("time_to_loss",)}))


@pytest.mark.parametrize("name", ["nope", "time", "loss_step"])
def test_a_name_that_cannot_be_added_lists_those_that_can(name):
    with pytest.raises(UserError, match=rf"experiment tiny: tables {name}: allowed are .*variants"):
        tables_of(naming(tables=(name,)))
    with pytest.raises(UserError, match=rf"experiment tiny: figures {name}: allowed are .*gap_bytes"):
        figures_of(naming(figures=(name,)))


@pytest.mark.parametrize("name", available(Experiment))
def test_every_shipped_experiment_names_what_there_is(name):
    experiment = load_experiment(name)
    assert tables_of(experiment)
    assert figures_of(experiment)


def test_what_an_experiment_does_not_name_is_not_made(tmp_path):
    with pytest.raises(UserError, match="this experiment has loss_step"):
        write_figure("gap_bytes", study([run("dense")]), tmp_path)
    with pytest.raises(UserError, match="this experiment has latency"):
        write_table("variants", study([run("dense")]), tmp_path)
    assert not list(tmp_path.iterdir())
