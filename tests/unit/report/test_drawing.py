"""A compact SVG is the picture that matplotlib drew: its texts, its colours, its marks where they were."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from edgc.report import canvas, drawing, style

SVG = drawing.SVG


@pytest.fixture
def figure() -> Figure:
    made = Figure(figsize=(4, 3))
    ax = made.subplots()
    ax.plot([1 / 3, 2 / 3, 10], [1e-3, 1, 7e5], "o--", color="#0072B2", label="a < b & c")
    ax.bar([1, 2], [3, 4], color="#E69F00")
    ax.imshow([[0.0, 1.0]], extent=(0, 1, 0, 1))
    ax.set_yscale("log")
    ax.set_ylabel("loss (nats)")
    made.legend()
    return made


def as_drawn(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=drawing.METADATA["svg"])
    return buffer.getvalue()


def marks(root: ElementTree.Element) -> list[tuple[str, list[float]]]:
    """Every mark with its numbers, in the order of drawing."""
    found = [element for element in root.iter() if element.tag in (f"{SVG}path", f"{SVG}use", f"{SVG}image")]
    where = ("d", "x", "y", "width", "height", "transform")
    numbers = [re.findall(r"-?[\d.]+(?:e-?\d+)?", " ".join(each.get(key, "") for key in where)) for each in found]
    return [(each.tag, [float(number) for number in own]) for each, own in zip(found, numbers, strict=True)]


def looks(root: ElementTree.Element, svg: bytes) -> list[set[str]]:
    """What is said of each mark and text, by a class or by itself."""
    rules = dict(re.findall(r"\.(c\d+)\{([^}]*)\}", svg.decode()))
    found = []
    for element in root.iter():
        if element.tag in (f"{SVG}path", f"{SVG}use", f"{SVG}text"):
            clip = [f"clip-path: {element.attrib['clip-path']}"] if "clip-path" in element.attrib else []
            own = "; ".join([*clip, element.get("style", ""), rules.get(element.get("class", ""), "")])
            found.append({part.strip() for part in own.split(";")} - {""})
    return found


def test_nothing_moves_or_changes_its_look(figure: Figure) -> None:
    with mpl.rc_context(style.RC):
        before = as_drawn(figure)
    after = drawing.compact(before)
    assert len(after) < 0.7 * len(before)
    old, new = ElementTree.fromstring(before), ElementTree.fromstring(after)
    assert ["".join(text.itertext()) for text in old.iter(f"{SVG}text")] == [
        "".join(text.itertext()) for text in new.iter(f"{SVG}text")
    ]
    for (tag, was), (same, now) in zip(marks(old), marks(new), strict=True):
        assert tag == same
        assert now == pytest.approx(was, abs=0.0051)
    assert looks(old, before) == looks(new, after)


def test_a_caption_keeps_its_indent_and_its_font_has_a_substitute(tmp_path: Path) -> None:
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(3, 2), layout="constrained")
        figure.subplots()
        canvas.caption(figure, ["Point: " + "a word of many " * 5])
        drawing.save(figure, tmp_path / "a.svg")
        drawing.save(figure, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert any((text.text or "").startswith(canvas.INDENT) for text in root.iter(f"{SVG}text"))
    families = re.findall(r"font(?:-family)?: ([^;}]+)", (tmp_path / "a.svg").read_text())
    assert families
    assert all(family.endswith("sans-serif") or "px" in family for family in families)
