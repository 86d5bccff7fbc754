"""Published pictures are drawn again from their CSVs, and still say what was measured and on what."""

import shutil
from pathlib import Path

import pytest

from edgc.core.base.errors import UserError
from edgc.report.redraw import redraw, setting

PUBLISHED = Path(__file__).parents[3] / "results/published"


def test_a_picture_drawn_again_keeps_its_setting_and_is_the_same_the_next_time(tmp_path: Path) -> None:
    for kind in ("svg", "csv"):
        source = PUBLISHED / f"links-every-step/figures/exposed.{kind}"
        (tmp_path / "figures").mkdir(exist_ok=True)
        shutil.copy(source, tmp_path / "figures")
    path = tmp_path / "figures/exposed.svg"
    before = setting(path)
    assert before.startswith("Experiment links-every-step: ")
    assert before.endswith(".")
    assert redraw(tmp_path) == [path]
    assert setting(path) == before
    first = path.read_bytes()
    redraw(tmp_path)
    assert path.read_bytes() == first


def test_a_picture_that_says_nothing_of_its_experiment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/loss_step.csv").write_text("model\n")
    (tmp_path / "figures/loss_step.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    with pytest.raises(UserError, match="of which experiment"):
        redraw(tmp_path)


def test_a_picture_of_no_figure_is_named(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for ending in ("svg", "csv"):
        (tmp_path / "figures" / f"unheard_of.{ending}").write_text("")
    with pytest.raises(UserError, match="there is no figure 'unheard_of'"):
        redraw(tmp_path)
