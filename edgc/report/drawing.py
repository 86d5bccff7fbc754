"""A drawing as a file: an SVG of which a reader sees every part, PNG or PDF. Equal data give equal files."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from matplotlib.figure import Figure

from edgc.core.base.files import atomic_open
from edgc.report import style

METADATA = {"svg": {"Date": None}, "png": {"Software": None}}  #: by kind; without times and versions
SVG = "{http://www.w3.org/2000/svg}"
PLACES = 2  #: decimals of a coordinate in points: an eightieth of a pixel
COORDINATES = ("d", "x", "y", "transform")

ElementTree.register_namespace("", SVG[1:-1])
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its file's ending says: .svg, .png or .pdf. Call it under `style.RC`."""
    kind = path.suffix[1:]
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, dpi=style.DPI, metadata=METADATA.get(kind))
    with atomic_open(path, "wb") as stream:
        stream.write(compact(drawn.getvalue()) if kind == "svg" else drawn.getvalue())


def compact(svg: bytes) -> bytes:
    """The same picture as matplotlib's SVG, in a third of its size.

    Coordinates are rounded to what a screen can show, each style is told once, as a class, and nothing is named or
    grouped that nothing refers to. Texts stay texts.
    """
    root = ElementTree.fromstring(svg)
    named = set(re.findall(rb"#([\w.-]+)", svg))
    classes: dict[str, str] = {}
    for element in root.iter():
        if element.get("id", "").encode() not in named:
            element.attrib.pop("id", None)
        for key in COORDINATES:
            if key in element.attrib:
                element.set(key, _rounded(element.attrib[key]))
        if element.get("transform", "").startswith("rotate(0 "):
            del element.attrib["transform"]
        clip, look = element.attrib.pop("clip-path", ""), element.attrib.pop("style", "")
        if look := f"clip-path: {clip}; {look}" if clip else look:
            element.set("class", classes.setdefault(look, f"c{len(classes)}"))
    root[:] = [child for child in _flat(root) if child.tag != f"{SVG}metadata"]
    rules = next(root.iter(f"{SVG}style"))
    rules.text = "\n".join([rules.text or "", *(f".{name}{{{look}}}" for look, name in classes.items())])
    return ElementTree.tostring(root, encoding="utf-8") + b"\n"


def _rounded(place: str) -> str:
    """Coordinates with no more digits than are seen; a matrix as it is, as its numbers are factors."""
    if "matrix" in place or "scale" in place:
        return place
    short = re.sub(r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), PLACES) + 0:.9g}", place)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", short) if place[:1] == "M" else short.replace("(-0 ", "(0 ")


def _flat(parent: Element) -> list[Element]:
    """What is in an element, without groups that say nothing of their own."""
    found: list[Element] = []
    for child in parent:
        if child.tag != f"{SVG}text":
            child[:] = _flat(child)
        child.tail = "\n"
        found += child if child.tag == f"{SVG}g" and not child.attrib else [child]
    return found
