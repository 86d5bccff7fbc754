"""Every figure as it was published, drawn anew: nothing runs out of the picture or into something else."""

from importlib import import_module
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure

from edgc.report import canvas, style, timeline_figure
from edgc.report import figures as rooms
from tests.fixtures.pictures import outside, overlapping

PUBLISHED = Path(__file__).parents[3] / "results/published"
FIGURES = (rooms.FIGURES, rooms.TIME_FIGURES, rooms.PREDICTED_FIGURES, rooms.SIMULATED_FIGURES, rooms.MORE_FIGURES)
SETTING = (
    "Experiment links-nano: gpt2-nano, gpt2-micro, n = 2 to 3 seeds a method, 2 (1 Gbit/s: 5, not limited: 6) rounds"
)
SETTING += " × 15 steps a rate, 4 processes on AMD EPYC 7763 64-Core Processor."


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", [name for room in FIGURES for name in room])
def test_nothing_runs_out_of_the_picture(name: str) -> None:
    module = import_module(f"edgc.report.figures.{name}")
    plotted = [pd.read_csv(path) for path in sorted(PUBLISHED.glob(f"*/figures/{name}.csv"))]
    if not plotted:
        pytest.skip(f"no experiment has published {name} so far")
    whole = [
        data for data in plotted if data.shape[1] == max(data.shape[1] for data in plotted)
    ]  # old ones lack columns
    for data in (min(whole, key=panels), max(whole, key=panels), max(whole, key=len)):  # narrow, wide, full
        with mpl.rc_context(style.RC):
            figure = canvas.draw(module, data, SETTING)
            assert not outside(figure)
            assert not overlapping(figure)


def panels(data: pd.DataFrame) -> tuple[int, int]:
    """How many panels are drawn of it, and how many rows."""
    return data["panel" if "panel" in data else "model"].nunique(), len(data)


def test_nothing_runs_out_of_a_timeline() -> None:
    span = {"title": "Dense", "stage": 0, "room": "device", "what": "forward", "begin": 0.0, "end": 1.0}
    with mpl.rc_context(style.RC):
        assert not outside(timeline_figure._draw(pd.DataFrame([span]), SETTING))


def test_what_runs_out_of_a_picture_is_noticed() -> None:
    figure = Figure(figsize=(2, 2))
    figure.subplots().set_title("far too long for two inches of paper")
    assert outside(figure)


def test_a_line_is_folded_between_words_and_none_is_lost() -> None:
    folded = canvas.folded(SETTING, 2.0, 7.0, canvas.INDENT)
    assert folded.split() == SETTING.split()
    assert max(canvas._inches(row, 7.0) for row in folded.splitlines()) <= 2.0 + canvas._inches(canvas.INDENT, 7.0)
    assert all(row.startswith(canvas.INDENT) for row in folded.splitlines()[1:])
