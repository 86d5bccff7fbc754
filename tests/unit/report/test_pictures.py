"""Every published figure, drawn anew: all of it is in the picture, marks lie in their axes, looks differ."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import vl_convert

from edgc.report import pictures, vega
from edgc.report.selection import FIGURES, figure_named, names
from edgc.report.style import CROWDED, Look
from tests.fixtures.pictures import beyond, legend

PUBLISHED = Path(__file__).parents[3] / "results/published"
SETTING = (
    "Experiment links-nano: gpt2-nano, gpt2-micro, n = 2 to 3 seeds a method, 2 (1 Gbit/s: 5, not limited: 6) rounds"
)
SETTING += " × 15 steps a rate, 4 processes on AMD EPYC 7763 64-Core Processor."
SVG = "{http://www.w3.org/2000/svg}"


def published(name: str) -> list[pd.DataFrame]:
    """What an experiment published of this figure: the one with the most rows, and the one with the fewest."""
    plotted = sorted((pd.read_csv(path) for path in PUBLISHED.glob(f"*/figures/{name}.csv")), key=len)
    return [plotted[-1], plotted[0]][: len(plotted)] if plotted else []


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", names(FIGURES))
def test_every_published_figure_is_drawn_whole(name: str, tmp_path: Path) -> None:
    if not published(name):
        pytest.skip(f"no experiment has published {name} so far")
    for data in published(name):
        spec = pictures.picture(figure_named(name), data, SETTING)
        pictures.write(spec, tmp_path / "a.svg")
        root = ElementTree.parse(tmp_path / "a.svg").getroot()
        said = " ".join(row for text in root.iter(f"{SVG}text") for row in text.itertext())
        shown = pictures.panels(figure_named(name), data)
        for words in (figure_named(name).title, SETTING, *shown, *figure_named(name).note):
            assert words in said
        assert not beyond(spec)


@pytest.mark.parametrize("name", ["gap_on_links", "pareto_bytes", "saving_by_link", "utilisation"])
def test_a_legend_names_few_of_many_methods_and_no_two_look_alike(name: str) -> None:
    for data in published(name):
        for views in pictures.panels(figure_named(name), data).values():
            looks = pictures._looks([views])
            assert len(set(looks.values())) == len(looks)
            always = {title for title in data["title"] if title.startswith(("Dense", "EDGC"))}
            assert len(set(legend(views)) - always) <= CROWDED


def test_marks_outside_of_their_axes_are_noticed() -> None:
    rows = pd.DataFrame({"x": [1.0, 9.0], "y": [1.0, 2.0], "label": "a"})
    x, y = vega.axis("x", "x", ends=(0, 2), nice=False), vega.axis("y", "y")
    view = vega.View(vega.points(rows, {"a": Look("#000000", "circle", "solid")}, x, y, {}))
    assert len(beyond(pictures.composed("Title", {"panel": [view]}, []))) == 1


def test_a_figure_without_data_says_so(tmp_path: Path) -> None:
    pictures.write(
        pictures.picture(figure_named("loss_step"), pd.DataFrame({"model": []}), SETTING), tmp_path / "a.svg"
    )
    assert pictures.NOTHING in (tmp_path / "a.svg").read_text()


def test_a_method_that_never_gets_to_a_rank_is_drawn(tmp_path: Path) -> None:
    seen = published("entropy_rank")[0].query("title == 'EDGC'").assign(rank=None, low_rank=None, high_rank=None)
    assert len(seen)
    pictures.write(pictures.picture(figure_named("entropy_rank"), seen, SETTING), tmp_path / "a.svg")
    assert "sends everything" in (tmp_path / "a.svg").read_text()


def test_a_line_is_folded_between_words_and_none_is_lost() -> None:
    folded = pictures.folded(SETTING, 200, 10)
    assert " ".join(folded) == SETTING
    assert max(map(len, folded)) <= 200 / 10 / pictures.EM


def test_a_compact_file_has_the_same_texts_and_places() -> None:
    data = published("pareto_bytes")[1]
    drawn = vl_convert.vegalite_to_svg(pictures.picture(figure_named("pareto_bytes"), data, SETTING))
    short = pictures.compact(drawn)
    assert len(short) < 0.6 * len(drawn)
    before, after = ElementTree.fromstring(drawn), ElementTree.fromstring(short)
    assert [text.text for text in before.iter(f"{SVG}text")] == [text.text for text in after.iter(f"{SVG}text")]
    assert _places(after) == pytest.approx(_places(before), abs=0.051)
    assert "sans-serif" in short


def _places(root: ElementTree.Element) -> list[float]:
    """The numbers of every mark that stands somewhere."""
    marks = [path for path in root.iter(f"{SVG}path") if path.get("transform")]
    return [
        float(number)
        for mark in marks
        for number in re.findall(r"-?[\d.]+", f"{mark.attrib['transform']} {mark.get('d')}")
    ]


def test_a_picture_is_compiled_once_for_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_ = vl_convert.vegalite_to_svg
    monkeypatch.setattr(vl_convert, "vegalite_to_svg", lambda spec: compiled.append(spec) or compile_(spec))
    pictures.write(pictures.composed("Title", {}, []), *(paths := [tmp_path / f"a{kind}" for kind in pictures.KINDS]))
    assert len(compiled) == 1
    assert [path.read_bytes()[:4] for path in paths] == [b"<svg", b"\x89PNG", b"%PDF"]
