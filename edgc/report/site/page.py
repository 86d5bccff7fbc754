"""The page: published results put into one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_text
from edgc.report import pictures
from edgc.report.figures import exposed
from edgc.report.gaps import published_measured
from edgc.report.render import NOTHING
from edgc.report.site import answers
from edgc.report.site.contents import Kept, Picture, ShownTable, one, published
from edgc.report.site.form import form
from edgc.report.site.overviews import claims, made
from edgc.report.style import LOOKS
from edgc.report.timed_steps import at, spoken

TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = 8  #: that a table shows at once
IDENTITY = ("Rate", "Method", "Assumptions", "Claim", "Premise", "Ranks", "Model", "method", "model", "stage")
TO_FILTER = 6  #: rows from which on a table has a filter
LONG = 60  #: characters of a cell from which on its column gets room for sentences
MOST_BYTES = 3_000_000  #: of a page
#: The figure that carries an experiment's answer: the first that it has.
LEADS = ("predicted_measured", "exposed", "gap_by_size", "gap_bytes", "parts", "pareto_bytes")
LEADS += ("who_wins_where", "saving_by_link", "error_prediction", "sampling_error", "window_correlation")
LEADS += ("loss_bytes",)


#: Cell by cell, as the page reads them, texts are twice as fast in Python's memory as in Arrow's.
PLAIN_TEXTS = "mode.string_storage", "python"


@pd.option_context(*PLAIN_TEXTS)
def write_site(results: Path) -> tuple[Path, str]:
    """Write `<results>/site/index.html` of everything under `<results>/published`. Returns it, and its headline."""
    every = published(results / "published")
    timing = answers.lead(every)
    first = answers.of_timing(timing) if timing else None
    asked = form(results / "published")
    target = results / "site" / "index.html"
    _write(target, results, every, title="Does compressing gradients pay?", answer=first, form=asked, single=False)
    return target, first.sentence if first else "No timing was published."


@pd.option_context(*PLAIN_TEXTS)
def write_page(experiment: str, results: Path) -> tuple[Path, str]:
    """Write `<results>/<experiment>/index.html` of what that folder holds. Returns it, and its headline.

    Raises `UserError` if the folder has no tables.
    """
    kept = one(results / experiment, experiment)
    if not kept.tables:
        raise UserError(f"{kept.folder / 'tables'}: no table; run the experiment first, see `edgc experiments`")
    answer = answers.headline(kept)
    target = kept.folder / "index.html"
    _write(target, results, [kept], title=kept.title, answer=answer, form=None, single=True)
    return target, answer.sentence if answer else kept.shows


def _write(target: Path, results: Path, every: Sequence[Kept], **context: Any) -> None:
    """Write the page of these experiments. `context`: what else its template shows."""
    around = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    around.filters |= {"json": _json, "pack": _pack, "kind": answers.verdict_kind}
    timing = answers.lead(every)
    text = around.get_template("page.html.j2").render(
        context,
        timing=timing and _timing(timing) | {"regimes": _regimes(timing, results / "published")},
        claims=_box("claims", "The paper's claims", claims(every)),
        experiments=[_experiment(each) for each in every],
        made=_box("made", "What made each number", made(every)),
        bundle=_bundle(results / "site"),
        asset=lambda name: (TEMPLATES / name).read_text(encoding="utf-8"),
    )
    size = len(text.encode())
    if size > MOST_BYTES:
        raise UserError(f"{target}: {size} bytes, but a page may have {MOST_BYTES}; publish fewer or smaller figures")
    write_text(target, text)


def _bundle(folder: Path) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, out of a package: nothing is loaded.

    `folder` keeps it: the package takes seconds to put it together.
    """
    import vl_convert

    kept = folder / f".vega-{version('vl-convert-python')}.js"
    if not kept.is_file():
        write_text(kept, vl_convert.javascript_bundle())  # type: ignore[call-arg]  # its stub lacks the default
    return kept.read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """For a script element: nothing in it can end the element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def _experiment(kept: Kept) -> dict[str, Any]:
    """What the template shows of an experiment."""
    shown = [_picture(each) for each in kept.pictures]
    ranked = sorted(shown, key=lambda each: LEADS.index(each["name"]) if each["name"] in LEADS else len(LEADS))
    return {
        **{name: getattr(kept, name) for name in ("name", "slug", "title", "shows")},
        "answer": answers.headline(kept),
        "command": f"snakemake --cores all --config experiment={kept.name}" if kept.experiment else None,
        "lead": ranked[0] if ranked else None,
        "pictures": ranked[1:],
        "tables": [_table(each, kept) for each in kept.tables],
    }


def _picture(picture: Picture) -> dict[str, Any]:
    charts = pictures.charts(pictures.panels(picture.figure, picture.data))
    csv = _csv(picture.data)
    return {"name": picture.name, "title": picture.figure.title, "csv": csv, "charts": charts}


def _csv(data: pd.DataFrame) -> str:
    """Five digits of fractions: the published files have them all, the page would be larger only."""
    return data.map(pictures.short).to_csv(index=False)


def _table(table: ShownTable, kept: Kept) -> dict[str, Any]:
    box = _box(f"{kept.slug}-{table.name}", table.title, table.shown.head(table.rows), table.methods)
    missing = max(0, len(table.shown) - table.rows)
    csv = _csv(pd.read_csv(table.csv))
    return box | {
        "words": table.words,
        "caption": table.caption,
        "csv": csv,
        "file": table.csv.name,
        "missing": missing,
    }


def _box(name: str, title: str, shown: pd.DataFrame, methods: Sequence[str] = ()) -> dict[str, Any]:
    """A table for the template: which columns stay, and which belong to which group."""
    fixed = max(1, len([*takewhile(IDENTITY.__contains__, shown.columns)]))  # that say what a row is
    size = max(1, COLUMNS - fixed)
    groups = [None if i < fixed else (i - fixed) // size for i in range(shown.shape[1])]
    last = max((group for group in groups if group is not None), default=0)
    return {
        "name": name,
        "title": title,
        "columns": list(zip(shown.columns, groups, strict=True)),
        "groups": [_span(shown.columns, groups, group) for group in range(last + 1)] if last else [],
        "rows": [
            {"cells": list(zip(row, groups, shown.columns, strict=True)), "swatch": _swatch(methods, index)}
            for index, row in enumerate(shown.itertuples(index=False, name=None))
        ],
        "long": [column for column in shown if shown[column].astype(str).str.len().max() > LONG],
        "filter": len(shown) >= TO_FILTER,
    }


def _span(columns: Iterable[str], groups: Sequence[int | None], group: int) -> str:
    own = [column for column, of in zip(columns, groups, strict=True) if of == group]
    return own[0] if len(own) == 1 else f"{own[0]} … {own[-1]}"


def _swatch(methods: Sequence[str], index: int) -> str | None:
    """The colour of a method that has one of its own."""
    found = LOOKS.get(methods[index]) if index < len(methods) else None
    return found.colour if found else None


def _pack(text: str) -> str:
    """Compressed, as the page's script unpacks it: a page holds the files that it was made from."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _timing(timing: Kept) -> dict[str, Any]:
    """The first answer: by rate, and by method and rate."""
    cells, to_do, links = answers.every_method(timing), answers.by_rate(timing), timing.numbers("links")
    rates = list(dict.fromkeys(cell.rate for cell in cells))
    methods = list(dict.fromkeys((each.method, each.title) for each in cells))
    method = "edgc" if any(name == "edgc" for name, _ in methods) else cells[0].method
    return {
        "name": timing.name,
        "slug": timing.slug,
        "charts": pictures.charts(exposed.on_links(links)),
        "by_rate": to_do,
        "cells": [
            {"method": each.method, "rate": each.rate, "sentence": each.answer.sentence}
            | {
                "verdict": each.answer.verdict,
                "kind": answers.verdict_kind(each.answer.verdict),
                "sure": each.answer.sure,
            }
            for each in cells
        ],
        "methods": methods,
        "rates": [(rate, spoken(rate)) for rate in rates],
        "method": method,
        "other": next((each.method for each in to_do if each.method != method), methods[-1][0]),
        "rate": rates[len(rates) // 2],
        "side_by_side": _side_by_side(cells, rates),
    }


def _regimes(timing: Kept, published: Path) -> str:
    """What the losses beside a timing were measured on."""
    sources = timing.experiment.judgement.gaps_from if timing.experiment else ()
    found = [gap.regime for gap, _ in published_measured(published) if gap.experiment in sources]
    return " or ".join(sorted({each.said(("parameters", "tokens_a_parameter", "steps")) for each in found} - {""}))


def _side_by_side(cells: Sequence[answers.MethodAnswer], rates: Sequence[str]) -> dict[str, Any]:
    """Methods down, rates across: step time saved against the fastest dense method, then the loss gap."""
    rows: dict[str, dict[str, str]] = {}
    for each in sorted(cells, key=lambda each: rates.index(each.rate)):
        row = rows.setdefault(each.method, {"Method": each.title})
        row[f"Saved {at(each.rate)}"] = f"{each.saved} ({each.answer.verdict})"
        row.setdefault("Loss gap (nats)", each.gap)
    methods = list(dict.fromkeys(each.method for each in cells))
    shown = pd.DataFrame([rows[method] for method in methods]).fillna(NOTHING)
    shown["Loss gap (nats)"] = shown.pop("Loss gap (nats)")  # last
    return _box("methods-table", "Methods side by side", shown, methods)
