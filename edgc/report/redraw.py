"""Published pictures drawn again, each from the CSV beside it: after a figure's look has changed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from edgc.core.base.errors import UserError
from edgc.report import bench_figure, pictures
from edgc.report.selection import FIGURES, figure_named, names


def redraw(folder: Path) -> list[Path]:
    """Write every figure of an experiment and of `edgc bench ops` under `folder` again. Returns them.

    The last line of its caption, what was measured and on what, is taken from the picture that is there. Raises
    `UserError` for a picture without one, or of no figure.
    """
    there = sorted(path for path in folder.rglob("*.svg") if path.with_suffix(".csv").is_file())
    drawn = [path for path in there if path.parent.name == "figures" or path.stem == "ops"]  # not of finished studies
    for path in drawn:
        if path.parent.name == "figures":
            if path.stem not in names(FIGURES):
                raise UserError(f"{path}: there is no figure {path.stem!r}; rename it, or move it out of this folder")
            spec = pictures.picture(figure_named(path.stem), pd.read_csv(path.with_suffix(".csv")), setting(path))
        else:
            spec = bench_figure.picture(path.with_suffix(".csv"))
        pictures.write(spec, path)
    return drawn


def setting(picture: Path) -> str:
    """The last line of a figure's caption, whose rows are one text."""
    for text in ElementTree.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}text"):
        rows = list(text.itertext())
        begins = [place for place, row in enumerate(rows) if row.startswith("Experiment ")]
        if begins:
            return " ".join(rows[begins[-1] :])
    raise UserError(f"{picture}: no line says of which experiment it is; run the experiment and publish it")
