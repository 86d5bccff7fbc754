"""Loss gaps against something else than the baseline: a control, and the same method with other replicas.

Muon and an outer momentum lower the loss by themselves, without any exchange. A method that uses them is credited with
the rest only. Of methods that decide by windows, a control also tells whether they see and decide the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from edgc.report import verdicts
from edgc.report.render import NOTHING, cell, coefficient, gap, loss, percent, share, with_ends
from edgc.report.study import Line, Study, baseline_among, framed, lines, pooled
from edgc.report.table import IDENTITY, METHOD, MODEL, Column, Table, beginning
from edgc.report.tables import accuracy
from edgc.report.tables.ranks import adaptive, counted, in_force
from edgc.report.verdicts import difference, spread
from edgc.report.window_means import correlation

GAP = verdicts.interval_names("gap")
HIGHER, LOWER, EQUAL = "higher loss", "lower loss", "not told apart"


def _credited(study: Study) -> pd.DataFrame:
    """One row per line with a control (`judgement.controls`): pairs, gap with gap_low and gap_high (nats), verdict, and
    bytes_percent of the control's. Models of CPU are pooled."""
    study = pooled(study)
    rows = [_against_control(line, control, study) for line, control in _controlled(study)]
    return framed(rows, "control", "pairs", *GAP, "verdict", "bytes_percent")


def _controlled(study: Study) -> Iterator[tuple[Line, Line | None]]:
    """Every line with a control, and that."""
    controls = study.experiment.judgement.controls
    for line in lines(study.frames.runs):
        if line.method in controls:
            yield line, baseline_among(line, study.frames.runs, controls[line.method])


def _against_control(line: Line, control: Line | None, study: Study) -> dict[str, object]:
    gaps = verdicts.gaps_to(line, control)
    gap = verdicts.interval_of("gap", gaps, study.experiment.until_decided)
    row: dict[str, object] = {**line.identity, "control": control.title if control else None, "pairs": len(gaps)}
    diverged = [each.status for each in (line, control) if each and set(each.measured["status"]) - {"done"}]
    row |= {**gap, "verdict": diverged[0] if diverged else _verdict(gap["gap_low"], gap["gap_high"], len(gaps))}
    if control is None:
        return row
    sent = study.frames.evals.groupby("run_id")["wire_bytes"].max()
    own, theirs = (verdicts.mean_bytes(each, sent) for each in (line, control))
    return row | {"bytes_percent": 100 * own / theirs if theirs else np.nan}


def _verdict(low: float, high: float, pairs: int) -> str:
    if pairs < verdicts.MIN_SEEDS:
        return EQUAL
    return HIGHER if low > 0 else LOWER if high < 0 else EQUAL


def _against_controls(table: pd.DataFrame) -> str:
    """A sentence for each method that finished with its control."""
    return "\n".join(
        f"{row['title']} against {row['control']}: {row['verdict']}, {accuracy.gap_in_words(row)} nats "
        f"(n = {row['pairs']})."
        for _, row in table[table["pairs"] > 0].iterrows()
    )


CREDIT = Table(
    "What is a method's own",
    "What a method changes against one that is the same but for one thing: what is its own, and what came with the "
    "rest.",
    _credited,
    {
        **IDENTITY,
        Column("Control", "control"): "the method that it is held against; the experiment names it",
        Column("Pairs", "pairs"): "seeds that both finished",
        Column("Loss gap", accuracy.gap_in_words, unit="nats"): "loss less the control's of the same seed, in nats a "
        "token: mean, and an interval like that of table `accuracy`",
        Column(
            "Verdict", "verdict"
        ): f"“{HIGHER}”: the interval lies above 0; “{LOWER}”: below; “{EQUAL}”: it holds 0, "
        f"or rests on fewer than {verdicts.MIN_SEEDS} pairs",
        Column("Bytes", "bytes_percent", share, "%"): "of gradients, that all ranks sent in a run: in percent of the "
        "control's",
    },
    _against_controls,
)

#: What is told of windows, and between which it can lie.
LIMITS = {"entropy_off": (0, None), "entropy_correlation": (-1, 1), "rank_off": (0, None), "same_percent": (0, 100)}


def _decided(study: Study) -> pd.DataFrame:
    """The rows of table `credit` that decide by windows, as their controls do: with layout, stages, and means over the
    n seeds of `seen_alike`, each with its interval."""
    study = pooled(study)
    rows = []
    for line, control in _controlled(study):
        alike = seen_alike(*(by_window(each, study) for each in (line, control))) if control else pd.DataFrame()
        if len(alike):
            where = {"layout": line.layout.name, "stages": int(line.runs.iloc[0]["spec.parallel.pipeline"])}
            seen = verdicts.intervals(alike, LIMITS)
            rows.append(_against_control(line, control, study) | where | {"n": len(alike)} | seen)
    columns = verdicts.interval_names(*LIMITS)
    table = framed(rows, "control", "layout", "stages", "n", *columns, "pairs", *GAP, "verdict", "bytes_percent")
    return verdicts.cut_off(table, LIMITS)


def by_window(line: Line, study: Study) -> pd.DataFrame:
    """Entropy (nats) and rank of a line's windows by seed, stage and step (index): means over a stage's matrices, whose
    names may differ between layouts. The rank is 0 where they are dense."""
    held = in_force(counted(adaptive(line.done_of(study.frames.decisions))), study.frames.runs)
    by = held[held["step"] > 0].assign(rank=held["rank"].fillna(0)).groupby(["seed", "stage", "step"])
    return by[["entropy", "rank"]].mean()


def seen_alike(own: pd.DataFrame, control: pd.DataFrame) -> pd.DataFrame:
    """Of what `by_window` gives of both, by seed that both have: `entropy_off` (nats) and `rank_off`, mean distances of
    windows; entropy_correlation, the lowest of a stage; same_percent of the windows with equal ranks."""
    both = own.join(control.add_suffix("_control"), how="inner")
    off = {name: (both[name] - both[f"{name}_control"]).abs() for name in ("entropy", "rank")}
    found = pd.DataFrame(
        {"entropy_off": off["entropy"], "rank_off": off["rank"], "same_percent": 100.0 * (off["rank"] < 0.5)}
    )
    follows = [
        {"seed": seed, "entropy_correlation": correlation(of["entropy"], of["entropy_control"])}
        for (seed, _), of in both.groupby(["seed", "stage"])
    ]
    lowest = pd.DataFrame(follows, columns=["seed", "entropy_correlation"]).groupby("seed").min()
    return found.groupby("seed").mean().join(lowest)


def _alike(table: pd.DataFrame) -> str:
    """A sentence a row."""
    return "\n".join(
        f"{row['title']} against {row['control']}: entropies are off by {cell(row['entropy_off'])} nats, mean "
        f"ranks are equal in {percent(row['same_percent'])} of the windows, losses: {row['verdict']}, "
        f"{accuracy.gap_in_words(row)} nats (n = {row['pairs']})."
        for _, row in table.iterrows()
    )


DECISIONS = Table(
    "Whether the same is decided",
    "Whether a method that decides by windows sees and decides what its control does, and ends with its loss.",
    _decided,
    {
        "All numbers": "by seeds that both finished: mean, in brackets its 95 % confidence interval (Student's t, "
        "cut off at what is possible)",
        **IDENTITY,
        Column("Control", "control"): "the method that it is held against; the experiment names it",
        Column("Layout", "layout"): "what ranks share",
        Column("Stages", "stages"): "of the pipeline. With one, nothing is aligned, and there is no traffic between "
        "stages: of EDGC's parts sampling, the rank rule, warm-up and error feedback are left",
        Column("n", "n"): "seeds",
        Column(
            "Entropy off", with_ends("entropy_off"), unit="nats"
        ): "mean distance of the windows' entropies, each a mean over a stage's matrices",
        Column("Correlation", with_ends("entropy_correlation", coefficient)): "of the windows' entropies, the lowest "
        "of a stage",
        Column("Rank off", with_ends("rank_off", cell)): "mean distance of the windows' ranks, each a mean over a "
        "stage's matrices; dense counts as 0",
        Column("Same rank", with_ends("same_percent", percent)): "share of the windows in which these means differ by "
        "less than a half",
        Column("Loss gap", accuracy.gap_in_words, unit="nats"): "loss less the control's of the same seed",
        Column("Verdict", "verdict"): "as in table `credit`",
        Column("Bytes", "bytes_percent", share, "%"): "of gradients, in percent of the control's",
    },
    _alike,
)

COLUMNS = ["replicas", "model", "method", "title", "device", "status", "seeds", "loss", "loss_sd"]
COLUMNS += ["pairs", "gap", "gap_low", "gap_high", "gap_sd", "verdict"]
HURT, HELP = "hurt", "help"
SAID = {HURT: "More replicas hurt", HELP: "More replicas help", EQUAL: "Few and many replicas are not told apart in"}


def _by_degree(study: Study) -> pd.DataFrame:
    """Tables `accuracy` of this experiment and of `judgement.rungs_from`, with the degree of data parallelism.

    A method that others trained with one degree only is left out.
    """
    others = {int(of["shared_by"].iloc[0]): table for table, of in study.rungs if table is not None}
    found = {**others, study.experiment.parallel.data: accuracy.build(study)}
    rows = [table.assign(replicas=degree) for degree, table in sorted(found.items())]
    table = pd.concat([table.reindex(columns=COLUMNS) for table in rows], ignore_index=True)
    table["gap_sd"] = [spread(row) for _, row in table.iterrows()]
    degrees = table.groupby(["model", "method"])["replicas"].transform("nunique")
    return table[(degrees > 1) | (table["replicas"] == study.experiment.parallel.data)].reset_index(drop=True)


def _effects(table: pd.DataFrame) -> str:
    """Which methods more replicas hurt, or help, and by how much."""
    degrees = table["replicas"].unique()
    if len(degrees) < 2:
        return f"Only {degrees[0]} replicas were trained, or the others are not published." if len(degrees) else ""
    told: dict[str, list[str]] = {effect: [] for effect in SAID}
    for title, own in _methods(table):
        if effect := _effect(own):
            low, high = _ends(own)
            more = gap(difference(low, high)[0])
            told[effect].append(f"{title} ({more} nats from {low['replicas']} to {high['replicas']})")
    return "\n".join(f"{SAID[effect]} {'; '.join(titles)}." for effect, titles in told.items() if titles)


def _methods(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Title and rows of each method, by degree. Hardware is not told apart: a sweep may cross machines."""
    for (_, title), own in table.sort_values("replicas", kind="stable").groupby(["model", "title"], sort=False):
        yield str(title), own


def _ends(own: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    return own.iloc[0], own.iloc[-1]


def _effect(own: pd.DataFrame) -> str | None:
    """What more replicas do; None where an end has no interval or a run did not end, and for the baseline."""
    _, low, high = difference(*_ends(own))
    if len(own) < 2 or np.isnan(low) or "baseline" in set(own["verdict"]) or set(own["status"]) != {"done"}:
        return None
    return HURT if low > 0 else HELP if high < 0 else EQUAL


def _by_method(table: pd.DataFrame) -> pd.DataFrame:
    """One line per method; a loss and a gap per degree."""
    rows = []
    for title, own in _methods(table):
        row: dict[str, object] = {"model": own["model"].iloc[0], "title": title}
        for _, each in own.iterrows():
            many = f"{each['replicas']} replica{'s' if each['replicas'] > 1 else ''}"
            row[f"Loss, {many}"] = loss(each["loss"]) if each["status"] == "done" else each["status"]
            row[f"Gap, {many}"] = accuracy.gap_in_words(each)
        effect = _effect(own)
        more = accuracy.interval(*difference(*_ends(own)))
        rows.append(row | {"more": f"{more}: {effect}" if effect else NOTHING})
    return pd.DataFrame(rows)


REPLICAS = Table(
    "Replicas",
    "What more replicas cost: every method's loss gap at each degree of data parallelism.",
    _by_degree,
    {
        MODEL: "",
        METHOD: "",
        beginning("Loss, ", "Gap, "): "",
        "Loss, … replicas": "final validation loss in nats a token, mean over seeds. Where runs did not finish: how "
        "they ended",
        "Gap, … replicas": "loss less that of the baseline with as many replicas: mean and 95 % confidence interval; "
        "where seeds were added until decided, one that is valid at any look, and so wider",
        Column("More replicas", "more"): "the gap with most replicas less that with fewest, in nats, and Welch's 95 % "
        f"interval; “{HURT}”: it lies above 0; “{HELP}”: below; “{EQUAL}”: 0 is in it",
    },
    _effects,
    _by_method,
)
