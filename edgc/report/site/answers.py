"""What published tables say, in a sentence with its verdict and how sure that is. Every number is a table's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pandas as pd

from edgc.report.links_in_words import FASTEST, LOSES, NOISE, PAYS
from edgc.report.render import cell, less, percent
from edgc.report.site.contents import Kept
from edgc.report.tables.choice import DENSE, taken
from edgc.report.timed_steps import FLOOR, OTHER, at, megabits, spoken
from edgc.report.verdicts import TOO_FEW

UNKNOWN = "not known"


@dataclass(frozen=True)
class Answer:
    """One answer. `verdict` is a word or two; `sure` says what it rests on."""

    sentence: str
    verdict: str
    sure: str


def verdict_kind(verdict: str) -> str:
    """good, bad, open or plain: how a verdict is marked, beside its words."""
    word = verdict.lower()
    if word.startswith((PAYS, "preserved", "better", "reproduced", "supports", "keeps")):
        return "good"
    if word.startswith((LOSES, "worse", "not reproduced", "contradicts", "diverged", "failed", "out of reach")):
        return "bad"
    if word.startswith((NOISE, TOO_FEW, "open", "undecided", UNKNOWN, "not comparable", "not run", "it depends")):
        return "open"
    return "plain"


def lead(kept: Iterable[Kept]) -> Kept | None:
    """The timing that the first answer rests on: of those with known loss gaps the one with most rows.

    Those whose methods cannot be held against one another have an answer each, and none by rate.
    """
    timed = [(each, each.numbers("links")) for each in kept if each.mode == "time"]
    known = [(each, table) for each, table in timed if "gap" in table and table["steps"].any() and _alike(each)]
    sizes = [(table["gap"].notna().sum(), len(table), each) for each, table in known]
    return max(sizes, key=lambda size: size[:2], default=(0, 0, None))[-1]


def _alike(timing: Kept) -> bool:
    """Whether all methods were timed with one model, on one kind of hardware and in one layout: a user takes any."""
    links, choice = timing.numbers("links"), timing.numbers("choice")
    layouts = choice["layout"].nunique() if "layout" in choice else len(_layouts(timing))
    return len(links[["model", "device"]].drop_duplicates()) == layouts == 1


def _layouts(timing: Kept) -> set[tuple[str, str]]:
    """By the experiment's settings, for tables without them."""
    runs = timing.experiment.runs() if timing.experiment else []
    return {(spec.loop, spec.training.shard) for spec in runs if spec.method.role != FLOOR}


@dataclass(frozen=True)
class MethodAnswer:
    """One method on links of one rate."""

    method: str
    title: str
    rate: str
    answer: Answer
    saved: str
    gap: str

    @classmethod
    def of(cls, row: pd.Series, answer: Answer) -> MethodAnswer:
        """That of a row of table `links`."""
        return cls(row["method"], row["title"], row["rate"], answer, _points(row), loss_gap(row))

    @property
    def spoken(self) -> str:
        """The rate, as it is read."""
        return spoken(self.rate)


def by_rate(timing: Kept) -> list[MethodAnswer]:
    """What to do at every rate of a timing that `lead` takes; nothing where nothing is dense and nothing pays.

    The fastest method whose loss gap is known to be within the margin, else the fastest dense one.
    """
    rates = [rows for _, rows in _judged(timing).groupby("rate", sort=False)]
    rates.sort(key=lambda rows: megabits(rows["rate"].iloc[0]))
    return [MethodAnswer.of(row, _to_do(row, rows)) for rows in rates if (row := taken(rows)) is not None]


def _to_do(row: pd.Series, rows: pd.DataFrame) -> Answer:
    """Why to take the method of `row` among all those at its rate."""
    if row["role"] == OTHER:
        sentence, verdict = f"Use {row['title']}: it {_saves(row)} and keeps the loss.", PAYS
    else:
        open_ones = rows[(rows["verdict"] == PAYS) & (rows["role"] == OTHER)]
        told = "no method that is known to keep the loss saves more than the noise"
        if len(open_ones):
            first = open_ones.sort_values("step_s").iloc[0]
            told += f"; {first['title']} {_saves(first)}, but its loss gap is {_kept(first)}"
        verdict = "it depends" if len(open_ones) else LOSES
        sentence = f"Use {row['title']}, without compression: {told}."
    return Answer(sentence, verdict, _sure(row))


def of_timing(timing: Kept) -> Answer:
    """Does compression pay on links of these rates? The first answer of the page."""
    rates = by_rate(timing)
    sure = f"Measured: {_sure(_judged(timing).iloc[0])}"
    paying = [each for each in rates if each.answer.verdict == PAYS]
    if not paying:
        return Answer("No: at none of the rates does a method that is known to keep the loss pay.", LOSES, sure)
    up_to, best = paying[-1], paying[0]
    rest = [at(each.rate) for each in rates if each.answer.verdict != PAYS]
    no = f" It does not pay {_listed(rest)}." if rest else ""
    where = f"on slow links: up to {up_to.spoken}" if rest else "at every rate:"
    saved = f"{best.saved} {at(best.rate)}"
    if up_to is not best:
        saved = f"from {saved} to {up_to.saved} {at(up_to.rate)}"
    sentence = f"Yes, {where} a method that keeps the loss saves step time, {saved}.{no}"
    return Answer(sentence, "pays on slow links" if rest else PAYS, sure)


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def every_method(timing: Kept) -> list[MethodAnswer]:
    """Every judged method at every rate: does it pay there, and what does it cost?"""
    rows = (row for _, row in _judged(timing).iterrows())
    return [MethodAnswer.of(row, _of_row(row)) for row in rows if row["role"] != FLOOR]


def _of_row(row: pd.Series) -> Answer:
    """A method at a rate, in one sentence: time, against what, and quality."""
    where, verdict = at(row["rate"]), str(row["verdict"])
    quality = f"Its loss gap is {_kept(row)}."
    step = f"{cell(1e3 * row['step_s'])} ms a step"
    if verdict == FASTEST:
        return Answer(f"{row['title']} {where} is the fastest dense method: {step}. {quality}", verdict, _sure(row))
    does = {PAYS: "pays", LOSES: "does not pay", NOISE: "makes no difference above the noise"}.get(verdict, verdict)
    sentence = f"{row['title']} {where} {does}: it {_saves(row)} than {row['dense']} ({step}). {quality}"
    return Answer(sentence, verdict, _sure(row))


def _saves(row: pd.Series) -> str:
    noise = f" (± {row['noise_points']:.1f} points)" if pd.notna(row["noise_points"]) else ""
    return f"takes {less(row['step_dense_percent'])} time{noise}"


def _points(row: pd.Series) -> str:
    noise = f" ± {row['noise_points']:.1f}" if pd.notna(row["noise_points"]) else ""
    return f"{percent(row['step_dense_percent'])}{noise}"


def loss_gap(row: pd.Series) -> str:
    """A row's gap with the interval that its verdict rests on. `±` is two standard errors, so it is not used here."""
    if pd.isna(row.get("gap")):
        return UNKNOWN
    if row["title"] == row.get("baseline"):
        return "baseline"
    spread = ""
    if pd.notna(row.get("gap_low")):
        spread = f"{row['gap_low']:+.4f} to {row['gap_high']:+.4f}, "
    elif pd.notna(row["gap_sd"]):
        spread = f"standard deviation {row['gap_sd']:.4f}, "
    return f"{row['gap']:+.4f} ({spread}n = {row['gap_n']:.0f})".replace("-", "−")


def _kept(row: pd.Series) -> str:
    """The loss gap with its judgement."""
    if pd.isna(row.get("gap")):
        return f"{UNKNOWN}: no published run measured it"
    judged = "within the margin" if row["preserved"] else "not known to be within the margin"
    return f"{loss_gap(row)} nats, {judged}"


def _sure(row: pd.Series) -> str:
    rounds = f"{row['rounds']:.0f} rounds, {row['steps']:.0f} steps"
    return f"{rounds} of {row['model']} on {row['device']}"


def _judged(timing: Kept) -> pd.DataFrame:
    """Table `links` with every column that a sentence needs; what an older file lacks is not known."""
    links = timing.numbers("links")
    if links.empty:
        return pd.DataFrame(columns=["rate", "role", "verdict"])
    for name, value in {"gap": np.nan, "gap_sd": np.nan, "gap_n": 0, "preserved": False, "rounds": np.nan}.items():
        if name not in links:
            links[name] = value
    return links[links["steps"] > 0]


def headline(kept: Kept) -> Answer | None:
    """What an experiment found, in a sentence; None where its tables say nothing that could be put so."""
    makers = {"time": _of_time, "simulate": _of_forecast, "train": _of_training, "study": _of_study}
    return makers[kept.mode](kept)


def _of_time(kept: Kept) -> Answer | None:
    predicted = kept.numbers("predicted")
    if not predicted.empty:
        return _of_prediction(predicted)
    links = _judged(kept)
    if links.empty:
        return None
    sure = f"Measured: {_sure(links.iloc[0])}"
    choice = kept.numbers("choice")
    alike = _alike(kept)
    if not alike and "layout" in choice:
        return _of_layouts(choice, sure)
    if alike and links["preserved"].any():
        return of_timing(kept)
    judged = links[(links["role"] == OTHER) & links["verdict"].isin((PAYS, LOSES, NOISE))]
    if judged.empty:
        return None
    share = judged.groupby("rate", sort=False)["verdict"].apply(lambda verdicts: (verdicts == PAYS).sum())
    sizes = judged.groupby("rate", sort=False).size()
    told = [f"{share[rate]} of {sizes[rate]} {at(str(rate))}" for rate in sizes.index]
    verdict = PAYS if share.all() else "it depends" if share.any() else LOSES
    return Answer(f"Methods that pay: {', '.join(told)}.", verdict, sure)


def _of_layouts(choice: pd.DataFrame, sure: str) -> Answer:
    """Each layout has its own answer: who shards a model that does not fit cannot take a faster layout's method."""
    told, dense = [], []
    several = [choice[name].nunique() > 1 for name in ("model", "device")]
    for (*names, name), rows in choice.groupby(["model", "device", "layout"], sort=False):
        of = ", ".join(compress(map(str, names), several))
        where = f"{name} ({of})" if of else str(name)
        paying = rows[rows["title"].notna() & (rows["sure"] != DENSE)]
        if paying.empty:
            dense.append(where)
        else:
            saved = {
                title: [f"{percent(row['step_dense_percent'])} {at(row['rate'])}" for row in own.iloc]
                for title, own in paying.groupby("title", sort=False)
            }
            told.append(
                f"{where}: " + ", ".join(f"{title} {' and '.join(at_rates)}" for title, at_rates in saved.items())
            )
    pays = f"A method that keeps the loss takes less time a step. {'; '.join(told)}." if told else ""
    no = f" Nothing that is known to keep the loss pays with {_listed(dense)}." if dense else ""
    return Answer((pays + no).strip(), PAYS if not dense else "it depends" if told else LOSES, sure)


def _of_prediction(predicted: pd.DataFrame) -> Answer:
    new = predicted[~predicted["known"].astype(bool)]
    errors = new["error_percent"].abs()
    sentence = (
        f"The cluster model was off by {cell(errors.mean())} % on average and by {cell(errors.max())} % at most "
        f"on {len(new)} steps at rates that it had not seen."
    )
    return Answer(
        sentence, "predicted before it was measured", f"Measured: {new['model'].iloc[0]} on {new['device'].iloc[0]}"
    )


def _of_forecast(kept: Kept) -> Answer | None:
    forecast = kept.numbers("forecast")
    if forecast.empty:
        return None
    said = forecast.drop_duplicates(["model", "assumption"])
    verdicts = said["verdict"].unique()
    row = said.iloc[0]
    sentence = f"{row['model']}, {row['assumption']}: {row['sentence']}."
    if len(said) > 1:
        sentence += f" The same verdict under {(said['verdict'] == row['verdict']).sum()} of {len(said)} assumptions."
    verdict = verdicts[0] if len(verdicts) == 1 else "it depends"
    return Answer(sentence, verdict, f"Forecast with {row['source']} rates; nothing was measured")


def _of_training(kept: Kept) -> Answer | None:
    accuracy = kept.numbers("accuracy")
    if accuracy.empty:
        return None
    judged = accuracy[accuracy["verdict"] != "baseline"]
    sure = _rests_on(accuracy)
    words = [word for table in kept.tables if table.name not in ("accuracy", "credit") for word in table.words]
    if words or judged.empty:
        return Answer(words[0] if words else kept.shows, "observed", sure)
    if set(judged["verdict"]) == {TOO_FEW}:
        ended = (accuracy["status"] == "done").sum()
        return Answer(
            f"{ended} of {len(accuracy)} methods trained to the end; so few seeds judge no loss.", TOO_FEW, sure
        )
    groups = [
        f"{verdict}: {', '.join(rows['title']) if len(rows) <= 8 else f'{len(rows)} methods'}"
        for verdict, rows in judged.groupby("verdict", sort=False)
    ]
    kinds = {verdict_kind(verdict) for verdict in judged["verdict"]}
    overall = judged["verdict"].iloc[0] if len(set(judged["verdict"])) == 1 else "it depends"
    margin = f" The margin is {kept.margin:g} nats." if kinds - {"open"} else ""
    return Answer(f"Loss, {'; '.join(groups)}.{margin}", overall, sure)


def _rests_on(accuracy: pd.DataFrame) -> str:
    least, most = int(accuracy["seeds"].min()), int(accuracy["seeds"].max())
    seeds = f"{most} seed{'s' if most != 1 else ''}" if least == most else f"{least} to {most} seeds"
    devices = accuracy["device"].dropna().unique()
    return f"Measured: {seeds} a method, {accuracy['model'].iloc[0]} on {', '.join(devices) or 'nothing so far'}"


def _of_study(kept: Kept) -> Answer | None:
    words = [word for table in kept.tables for word in table.words]
    return Answer(words[0], "observed", "Measured on recorded gradients") if words else None
