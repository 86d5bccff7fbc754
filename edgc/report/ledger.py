"""The ledger of a replication: a row for all that a paper has, with what stands beside it here, and a verdict.

And where authors' code departs from their papers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_text
from edgc.report.reference_values import OPEN, Entry, Judged, Reference
from edgc.report.regime import regime_of
from edgc.report.render import NOTHING, markdown
from edgc.report.selection import table_named
from edgc.report.verdicts import TOO_FEW
from edgc.suite.config import load_experiment

#: Headings of what a deviation has.
TOPICS = {"topic": "Topic", "paper": "Paper", "released": "Released code", "consequence": "Consequence", "here": "Here"}
#: What a page has of a table's words: the marks, experiment, table, and what is between them.
WORDS = r"(<!-- words ([\w-]+)/(\w+) -->\n)(.*?)(<!-- end -->)"


def ledger(reference: Reference, published: Path, links: str) -> pd.DataFrame:
    """The ledger as it is read. Verdicts, seeds and regimes come from what is published and from the experiments.

    `links` is put before the names of tables and figures. Raises `UserError` for what an entry names and there is not,
    and for one whose published verdict is open without a word on what would settle it.
    """
    return pd.DataFrame([_row(entry, reference, published, links) for entry in reference.ledger])


def deviations(references: Iterable[Reference]) -> pd.DataFrame:
    """Where the papers' public code departs from them, as it is read."""
    return pd.DataFrame(
        {"Method": f"`{paper.method}`"} | {TOPICS[name]: said for name, said in each.model_dump().items()}
        for paper in references
        for each in paper.deviations
    )


def write_page(references: Sequence[Reference], published: Path, page: Path) -> None:
    """Write into a page beside `results/`, each before its next `<!-- end -->`: after `<!-- ledger -->` the first
    paper's, after `<!-- deviations -->` those of all, after `<!-- words EXPERIMENT/TABLE -->` what this table says."""
    links = "../results/published/"
    text = page.read_text(encoding="utf-8")
    tables = {"ledger": ledger(references[0], published, links), "deviations": deviations(references)}
    for name, table in tables.items():
        pattern, written = rf"(<!-- {name} -->\n).*?(<!-- end -->)", markdown(table)
        text, count = re.subn(pattern, lambda m, written=written: m[1] + written + m[2], text, flags=re.S)
        if not count:
            raise UserError(f"{page}: no lines <!-- {name} --> and <!-- end --> to write between")
    write_text(page, re.sub(WORDS, lambda m: m[1] + words(m[2], m[3], published, links) + m[5], text, flags=re.S))


def words(experiment: str, table: str, published: Path, links: str) -> str:
    """What a published table says, as a list; of one that is not published yet, what measures it."""
    path = f"{experiment}/tables/{table}"
    if not (published / f"{path}.csv").is_file():
        return f"- Not published yet: `{experiment}` measures it.\n"
    said = table_named(table).words(pd.read_csv(published / f"{path}.csv"))
    return "".join(f"- {line} ([{experiment}]({links}{path}.md))\n" for line in said.splitlines())


def _row(entry: Entry, reference: Reference, published: Path, links: str) -> dict[str, str]:
    said = entry.text or reference.printed[entry.of or ""]
    judged = verdict(entry, published)
    if judged in OPEN and not entry.settles:
        raise UserError(f"ledger, {said}: {judged}; say in `settles` what would settle it")
    if absent := [path for path in entry.shown if not (published / path).is_file()]:
        raise UserError(f"ledger, {said}: {', '.join(absent)}: not in {published}")
    spoken = {path: Path(path).stem.replace("_", " ").replace("README", "dry run") for path in entry.shown}
    shown = [f"[{name}]({links}{path})" for path, name in spoken.items()]
    regime, seeds = _measured(entry, reference.method, published)
    once = " (one seed)" if seeds == "1" and judged not in (*OPEN, TOO_FEW) else ""
    return {
        "The paper": f"**{entry.kind}** {said}",
        "Our experiment": " ".join(filter(None, (entry.stand_in, _code(entry.experiment), _code(entry.command)))),
        "Shown in": ", ".join(shown) or NOTHING,
        "We find": entry.ours,
        "Regime": regime,
        "n": seeds,
        "Verdict": judged + once,
        "What would settle it": entry.settles or NOTHING,
    }


def verdict(entry: Entry, published: Path) -> str:
    """Its own, or those that the published rows have, with how many of each where they differ."""
    if not isinstance(entry.verdict, Judged):
        return entry.verdict
    path = published / f"{entry.verdict.table}.csv"
    rows = pd.read_csv(path, dtype=str).to_dict("records") if path.is_file() else []
    where = entry.verdict.where.items()
    found = pd.Series([row["verdict"] for row in rows if where <= row.items()], dtype=str).value_counts()
    if found.empty:
        raise UserError(f"ledger: {path} has no row with {entry.verdict.where}")
    return str(found.index[0]) if len(found) == 1 else ", ".join(f"{count} × {name}" for name, count in found.items())


def _measured(entry: Entry, method: str, published: Path) -> tuple[str, str]:
    """On what it was measured, and with how many seeds (of the method, where it is there) or rounds; or dashes."""
    if not entry.experiment:
        return NOTHING, NOTHING
    loaded = load_experiment(entry.experiment)
    spec = loaded.runs()[0]
    if not (published / entry.experiment).is_dir():
        return NOTHING, NOTHING
    if loaded.mode == "simulate":
        return f"{spec.model.name}, simulated", NOTHING
    if loaded.timing:
        return f"{spec.model.name}, timed", f"{loaded.timing.rounds} rounds"
    rows = pd.read_csv(published / entry.experiment / "tables/accuracy.csv")
    own = rows[rows["method"] == method]
    regime = regime_of(spec).said(("tokens_a_parameter", "steps"))
    return f"{spec.model.name}, {regime}", str((rows if own.empty else own)["seeds"].max())


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""
