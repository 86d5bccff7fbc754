"""What an experiment's folder holds, as the page shows it. Every number comes from a CSV in that folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from edgc.core.base import files
from edgc.report import manifests
from edgc.report.figure import Figure
from edgc.report.gaps import some
from edgc.report.render import NOTHING, cell
from edgc.report.selection import TABLES, figure_named, names, table_named
from edgc.report.table import Table
from edgc.suite.config import CONFIGS, Experiment, available, load

#: What folders that are no experiment of configs/experiments show.
TITLES = {
    "others-predicted": "Step times and links of others, predicted",
    "lossless": "What an entropy coder gets out of gradients",
    "sketches": "Do sketches of gradients pay?",
    "bf16-ring": "What a sum in bf16 loses with the number of ranks",
    "exchange-time": "Time of a low-rank exchange against its rank",
    "engines": "Replicas in one process beside a process each",
    "owners": "Bringing gradients to the ranks that own them",
    "ops-cpu": "How long an exchange's operations take on a CPU",
    "ops-cuda": "How long an exchange's operations take on a GPU",
    "gpu-dry/paper-h100": "The paper's H100 set-up, executed on a device without data",
    "gpu-dry/paper-v100": "The paper's V100 set-up, executed on a device without data",
}
MOST_ROWS, MOST_PLAIN_ROWS = 150, 40  #: that the page shows of a table, and of one that no module words; a file has all


@dataclass(frozen=True)
class ShownTable:
    """A table as it is read, and where it came from."""

    name: str
    title: str
    words: tuple[str, ...]  #: what the numbers say, a sentence each
    shown: pd.DataFrame  #: text
    methods: tuple[str, ...]  #: the method of each row; empty where rows are no methods
    caption: Mapping[str, str]  #: what each column is
    csv: Path
    rows: int  #: that the page shows at most


@dataclass(frozen=True)
class Picture:
    """A figure: what draws it, and what is plotted."""

    name: str
    data: pd.DataFrame
    figure: Figure


@dataclass(frozen=True)
class Kept:
    """What one experiment published, or what its own folder holds."""

    name: str
    folder: Path
    experiment: Experiment | None  #: None: a study that has no file in configs/experiments

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name)

    @property
    def mode(self) -> str:
        """train, time, simulate or study."""
        return self.experiment.mode if self.experiment else "study"

    @property
    def title(self) -> str:
        return self.experiment.title if self.experiment else TITLES.get(self.name, self.name)

    @property
    def shows(self) -> str:
        return self.experiment.shows if self.experiment else ""

    @property
    def margin(self) -> float:
        """Loss gap (nats) up to which this experiment calls quality preserved; NaN for a study."""
        return self.experiment.judgement.margin_nats if self.experiment else np.nan

    def numbers(self, table: str) -> pd.DataFrame:
        """The numbers of a table; without a column if there is none."""
        path = self.folder / "tables" / f"{table}.csv"
        return pd.read_csv(path) if path.is_file() else pd.DataFrame()

    @cached_property
    def tables(self) -> tuple[ShownTable, ...]:
        """Tables, in the order of the files' names, the judged ones first."""
        paths = sorted((self.folder / "tables").glob("*.csv"), key=lambda path: (_rank(path.stem), path.stem))
        return tuple(_table(path, self.experiment) for path in [*paths, *sorted(self.folder.glob("*.csv"))])

    @cached_property
    def pictures(self) -> tuple[Picture, ...]:
        """Figures, in the order of the files' names."""
        drawn = sorted((self.folder / "figures").glob("*.csv"))
        own = (path for path in drawn if path.with_suffix(".svg").is_file())
        return tuple(Picture(path.stem, pd.read_csv(path), figure_named(path.stem)) for path in own)

    @property
    def manifests(self) -> list[dict[str, Any]]:
        """Manifests of its runs, or of the study; empty if it has none."""
        places = ("manifest.json", "*.manifest.json", "runs/*/manifest.json")
        found = [path for place in places for path in sorted(self.folder.glob(place))]
        if self.experiment:  # of settings that were changed since there may be runs, too
            own = {spec.run_id for spec in self.experiment.runs_at_most()}
            found = [path for path in found if path.parent.parent.name != "runs" or path.parent.name in own]
        alone = [files.read_json(path) for path in found]
        together = (manifests.read(path) for path in self.folder.glob(manifests.NAME))
        return [*alone, *(records["manifest"] for runs in together for records in runs.values())]


def published(root: Path) -> list[Kept]:
    """Everything under `results/published`, by name. Raises `UserError` if there is nothing."""
    return [one(folder, name) for name, folder in some(root).items()]


def one(folder: Path, name: str, configs: Path = CONFIGS) -> Kept:
    """One experiment's folder."""
    known = name in available(Experiment, configs)
    return Kept(name, folder, load(Experiment, name, configs) if known else None)


def _rank(table: str) -> int:
    first = ("links", "accuracy", "forecast", "predicted", "variants", "parts", "time_to_loss", "observations")
    return first.index(table) if table in first else len(first)


def _table(path: Path, experiment: Experiment | None) -> ShownTable:
    """The table of a CSV: as it is declared, as the Markdown beside it has it, or column by column."""
    name, numbers = path.stem, pd.read_csv(path)
    title, rows, words, caption = name.replace("_", " ").capitalize(), MOST_ROWS, (), {}
    table = table_named(name) if name in names(TABLES) else None
    if path.parent.name != "tables" and path.with_suffix(".md").is_file():
        words, shown, caption = _study(path)
    elif table and (found := _present(table, numbers)):
        shown, whole = found
        title, caption = table.title, table.captions(experiment)
        words = table.words(_told(whole, experiment) if name == "links" else whole).splitlines()
    else:
        shown, rows = _plain(numbers), MOST_PLAIN_ROWS
    methods = numbers["method"].astype(str) if "method" in numbers and len(shown) == len(numbers) else ()
    return ShownTable(name, title, tuple(words), _informative(shown), tuple(methods), caption, csv=path, rows=rows)


def _study(path: Path) -> tuple[list[str], pd.DataFrame, dict[str, str]]:
    """Of a finished study, whose program is in the history only: sentences, a table, and what each column is."""
    above, rows, below = re.split(r"((?:^\|.*\n)+)", path.with_suffix(".md").read_text(encoding="utf-8"), flags=re.M)
    head, _, *body = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines())
    caption = dict(re.findall(r"^- (.*?): (.*)\.$", below, re.MULTILINE))
    return re.findall(r"^- (.*)$", above, re.MULTILINE), pd.DataFrame(body, columns=head), caption


def _present(table: Table, numbers: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """As it is declared, and the numbers with columns that are younger than the file, without a value; None if that
    does not do."""
    for _ in range(len(numbers.columns) + 20):
        try:
            return table.present(numbers), numbers
        except KeyError as missing:
            if str(missing.args[0]) in numbers:
                return None
            numbers = numbers.assign(**{str(missing.args[0]): np.nan})
        except (TypeError, ValueError):
            return None
    return None


def _told(links: pd.DataFrame, experiment: Experiment | None) -> pd.DataFrame:
    """Table `links` with whether a method averages in every step, as its settings say; older files lack that.

    A method that the experiment does not have any more counts as one that does not: nobody knows.
    """
    if "in_every_step" in links or experiment is None:
        return links
    known = {spec.method.name for spec in experiment.runs() if spec.method.in_every_step}
    return links.assign(in_every_step=links["method"].isin(known))


def _plain(numbers: pd.DataFrame) -> pd.DataFrame:
    """Every column of a file, its numbers rounded."""
    floats = dict.fromkeys(numbers.select_dtypes("float"), cell)
    shown = {name: values.map(floats[name]) if name in floats else values for name, values in numbers.items()}
    return pd.DataFrame(shown).rename(columns=lambda name: str(name).replace("_", " "))


def _informative(shown: pd.DataFrame) -> pd.DataFrame:
    """As text, without the columns that have no value, and with `Model` and `Hardware` only where rows differ."""
    text = shown.map(lambda value: NOTHING if value is None or pd.isna(value) else str(value))
    same = [name for name in ("Model", "Hardware", "Status") if name in text and text[name].nunique() <= 1]
    empty = [name for name in text if text[name].isin((NOTHING, "nan", "")).all()]
    return text.drop(columns=[*dict.fromkeys([*same, *empty])])
