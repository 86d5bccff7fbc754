"""What `edgc bench exchange` measured: does T_com(r) = ηr hold, and what does alignment (DAC) lose by a wrong η?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from edgc.core.base.files import write_text
from edgc.core.policies.rank_model import error
from edgc.core.policies.stage_alignment import ExchangeCost, aligned_rank, fit, paying_rank, proportional
from edgc.report import pictures, vega
from edgc.report.render import NOTHING, cell, markdown, number, with_range
from edgc.report.style import PALETTE, Look
from edgc.report.vega import Spec, View

LEAD, RIGHT = 32, 64  #: the first stage's rank, and a later stage's with the slack that the right line makes it of
AWAY = "20 ms apart"
#: The lines that alignment may believe, in words.
LINES = {"right": "α + η r", "half": "half of its η", "double": "twice its η", "paper": "the paper's η r"}
SAME = ["links", "rate", "processes"]  #: of all exchanges that a line is fitted to
LOOKS = {
    f"{n} processes": Look(PALETTE[i], marker, "solid")
    for i, (n, marker) in enumerate([(2, "circle"), (4, "square"), (8, "triangle-up")])
}
CAPTION = [
    "Mark: median of the repeats. Bar: lowest to highest. Solid line: α + η r. Dotted line: the paper's η r.",
    "Fitted to the medians by least squares. Both axes are logarithmic: η r is a straight line.",
]


def costs(rows: pd.DataFrame) -> Iterator[tuple[dict[str, object], list[ExchangeCost]]]:
    """By links, rate and processes: the fit to the medians, then that to each repeat."""
    for same, own in rows.groupby(SAME, sort=False):
        seconds = {rank: own["seconds"][own["rank"] == rank].tolist() for rank in sorted(set(own["rank"].tolist()))}
        dense = seconds.pop(0)
        single = [fit({r: [s[i]] for r, s in seconds.items()}, [dense[i]]) for i in range(len(dense))]
        yield dict(zip(SAME, same, strict=True)), [fit(seconds, dense), *single]


def fits(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each kind of links, rate and number of processes: both lines, and where the intercept is the most."""
    found = []
    for same, own in costs(rows):
        paper = [proportional(cost) for cost in own]
        numbers = {
            "eta_ms": [1e3 * p.slope for p in paper],
            "eta_r_squared": [p.r_squared for p in paper],
            "eta_off_percent": [100 * furthest(p) for p in paper],
            "alpha_ms": [1e3 * c.intercept for c in own],
            "slope_ms": [1e3 * c.slope for c in own],
            "r_squared": [c.r_squared for c in own],
            "off_percent": [100 * furthest(c) for c in own],
            "even_rank": [max(0.0, c.intercept / c.slope) for c in own],
        }
        pays = paying_rank(own[0])
        found.append(same | _spreads(numbers) | {"pays_below_rank": 0.0 if pays is None else pays})
    return pd.DataFrame(found)


def furthest(cost: ExchangeCost) -> float:
    """The largest |T − line| / T of its points."""
    return max(abs(cost.intercept + cost.slope * rank - seconds) / seconds for rank, seconds in cost.points)


def alignment(rows: pd.DataFrame) -> pd.DataFrame:
    """What DAC makes of a stage that has slack for rank 64, from lines that are wrong, and how late its exchange ends.

    Both stages have these matrices, and the first one rank 32. Late is against the first one's end plus the slack, by
    measured times, between measured ranks on straight lines.
    """
    found = []
    for same, own in costs(rows):
        slack = own[0].slope * (RIGHT - LEAD)
        believed = {
            "right": own[0], "half": replace(own[0], slope=own[0].slope / 2),
            "double": replace(own[0], slope=own[0].slope * 2), "paper": proportional(own[0]),
        }  # fmt: skip
        for line, cost in believed.items():
            target = aligned_rank(LEAD, cost, cost, slack)
            rank = None if target is None else min(round(target), own[0].points[-1][0])
            late = [1e3 * (seconds_at(c, rank) - seconds_at(c, LEAD) - slack) for c in own]
            share = [100 * ms / (1e3 * (seconds_at(c, LEAD) + slack)) for ms, c in zip(late, own, strict=True)]
            told = {
                "line": line,
                "slack_ms": 1e3 * slack,
                "rank": rank,
                **_spreads({"late_ms": late, "late_percent": share}),
            }
            found.append(same | told)
    return pd.DataFrame(found)


def seconds_at(cost: ExchangeCost, rank: int | None) -> float:
    """As measured, of a rank between measured ones on a straight line; None: uncompressed."""
    return cost.dense if rank is None else float(np.interp(rank, *np.transpose(cost.points)))


def error_share(shapes: Sequence[tuple[int, int]], rank: int) -> float:
    """The low-rank error of normal gradients at `rank`, as a share of that at rank 64 (CQM)."""
    return float(error(shapes, rank) / error(shapes, RIGHT))


def _spreads(numbers: dict[str, list[float]]) -> dict[str, float]:
    """Of lists whose first is the medians', the rest the repeats'."""
    ends = {
        f"{name}_{end}": take(own[1:]) for name, own in numbers.items() for end, take in (("low", min), ("high", max))
    }
    return {name: own[0] for name, own in numbers.items()} | ends


def _sites(numbers: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of links of one site, and those of nodes far apart, with what to call them."""
    away = numbers["links"] == AWAY
    yield from ((w, n) for w, n in (("Links of one site", numbers[~away]), (f"Nodes {AWAY}", numbers[away])) if len(n))


def _said_of_lines(lines: pd.DataFrame) -> Iterator[str]:
    for where, own in _sites(lines):
        off, more_off = own["eta_off_percent"], own["off_percent"]
        yield (
            f"{where}: at its worst rank η r is off by {_ends(off, '.0f')} % of the measured time, with an R² of "
            f"{_ends(own['eta_r_squared'], '.2f')}; α + η r by {_ends(more_off, '.0f')} %, with "
            f"{_ends(own['r_squared'], '.2f')}. α is more than η r below rank {_ends(own['even_rank'], '.0f')}."
        )


def _said_of_alignment(dac: pd.DataFrame) -> Iterator[str]:
    for where, own in _sites(dac):
        for line, words in LINES.items():
            here = own[own["line"] == line]
            late = here["late_percent"][here["rank"].notna()]
            compressed = f"compressed in {len(late)} of {len(here)} cases"
            ends = f"; it ends {_ends(late, '+.0f')} % late (negative: early)" if len(late) else ""
            yield f"{where}, a stage aligned by {words}: {compressed}{ends}."


def _ends(values: pd.Series, form: str) -> str:
    low, middle, high = (number(value, form) for value in (values.min(), values.median(), values.max()))
    return f"{middle} ({low} to {high})"


def write(table: Path, shapes: Sequence[tuple[int, int]]) -> str:
    """Beside the CSV of `edgc bench exchange`: fits and alignment as CSV and text, the figure. Returns the texts."""
    rows = pd.read_csv(table)
    lines, dac = fits(rows), alignment(rows)
    for kind in (".svg", ".png"):
        pictures.write(picture(table), table.with_suffix(kind))
    texts = {
        "fits": (lines, _said_of_lines(lines), _fits_read(lines), _fits_captions(rows)),
        "alignment": (dac, _said_of_alignment(dac), _alignment_read(dac, shapes), ALIGNMENT_CAPTIONS),
    }
    told = []
    for name, (numbers, said, read, captions) in texts.items():
        write_text(table.with_name(f"{name}.csv"), numbers.to_csv(index=False, float_format="%.4g"))
        items = ("".join(f"- {item}\n" for item in part) for part in (said, captions))
        told.append(f"\n{markdown(read)}\n".join(items))
        write_text(table.with_name(f"{name}.md"), told[-1])
    return "\n".join(told)


def _fits_read(lines: pd.DataFrame) -> pd.DataFrame:
    columns = {
        "η r: η (ms a rank)": ("eta_ms", ".2f"),
        "η r: R²": ("eta_r_squared", ".3f"),
        "η r: off by (%)": ("eta_off_percent", ".0f"),
        "α + η r: α (ms)": ("alpha_ms", ".0f"),
        "α + η r: η (ms a rank)": ("slope_ms", ".2f"),
        "α + η r: R²": ("r_squared", ".3f"),
        "α + η r: off by (%)": ("off_percent", ".0f"),
        "α = η r at rank": ("even_rank", ".0f"),
    }
    shown = _same(lines)
    for title, (name, form) in columns.items():
        shown[title] = [
            with_range(*ends, form=partial(number, form=form), between=" to ")
            for ends in zip(lines[name], lines[f"{name}_low"], lines[f"{name}_high"], strict=True)
        ]
    shown["Pays below rank"] = lines["pays_below_rank"].map(lambda rank: cell(rank) if rank else "never")
    return shown


def _alignment_read(dac: pd.DataFrame, shapes: Sequence[tuple[int, int]]) -> pd.DataFrame:
    shown = None
    for line, own in dac.groupby("line", sort=False):
        shown = _same(own).assign(**{"Slack (ms)": own["slack_ms"].map(cell)}) if shown is None else shown
        shown[f"By {LINES[str(line)]}"] = [
            f"{'uncompressed' if pd.isna(rank) else f'rank {rank:.0f}'}: {_signed(ms)} ms ({_signed(share)} %)"
            for rank, ms, share in zip(own["rank"], own["late_ms"], own["late_percent"], strict=True)
        ]
    assert shown is not None
    paper = [None if pd.isna(rank) else int(rank) for rank in dac["rank"][dac["line"] == "paper"]]
    shown["η r: bytes"] = [NOTHING if rank is None else cell(rank / RIGHT) for rank in paper]
    shown["η r: error"] = [NOTHING if rank is None else number(error_share(shapes, rank), ".3f") for rank in paper]
    return shown


def _signed(value: float) -> str:
    return number(round(value), "+d")  # no −0


def _same(numbers: pd.DataFrame) -> pd.DataFrame:
    rate = numbers["rate"].str.replace("mbit", " Mbit/s")
    return pd.DataFrame({"Links": numbers["links"], "Rate": rate, "Processes": numbers["processes"].astype(str)})


def _fits_captions(rows: pd.DataFrame) -> list[str]:
    ranks = ", ".join(map(str, sorted(set(rows["rank"]) - {0})))
    return [
        "Links: even: all have the rate; congested: datagrams of another flow take half of every link; one slow rank: "
        "its link has a quarter; changing: a day of `daily-wave` in 12 s with the rate as its highest; "
        f"{AWAY}: one way.",
        f"η and α: fitted to the medians of {rows['repeat'].max()} repeats at ranks {ranks}; brackets: the lowest and "
        "highest of the lines of single repeats.",
        "T: of the slowest process with its coding, of random gradients of a block of gpt2-micro; nothing trains; all "
        "processes share the machine's cores.",
        "off by: the largest |T − line| / T of a rank.",
        "Pays below rank: where an exchange takes as long as an uncompressed one; inf: nowhere.",
    ]


ALIGNMENT_CAPTIONS = [
    f"Slack: what rank {RIGHT} takes more than rank {LEAD} by α + η r; the first stage has rank {LEAD}, the same "
    "matrices and line.",
    "By …: the rank that DAC decides by this line, and how late the measured exchange ends after that of the first "
    "stage and the slack; negative: early.",
    f"η r, bytes and error: as shares of rank {RIGHT}'s; the error is that of normal gradients, by CQM.",
]


def picture(table: Path) -> Spec:
    """Of that CSV, measured times against rank, and both lines: a panel for each kind of links and rate."""
    rows = pd.read_csv(table)
    lines = fits(rows)
    panels: dict[str, Sequence[View]] = {}
    compressed = rows[rows["rank"] > 0]
    for links, rate in compressed[["links", "rate"]].drop_duplicates().itertuples(index=False):
        own, both = (each[(each["links"] == links) & (each["rate"] == rate)] for each in (compressed, lines))
        panels[f"{links}, {rate.replace('mbit', ' Mbit/s')}"] = _draw(own, both)
    return pictures.composed("Time of a low-rank exchange against its rank", panels, CAPTION, most=2)


def _draw(own: pd.DataFrame, lines: pd.DataFrame) -> list[View]:
    ranks = sorted(set(own["rank"]))
    x = vega.axis("rank", "rank", log=True, ticks=ranks)
    y = vega.axis("ms", "ms", log=True)
    label = own["processes"].map(lambda n: f"{n} processes")
    measured = own.assign(label=label, ms=1e3 * own["seconds"]).groupby(["label", "rank"])["ms"]
    marks = measured.agg(ms="median", low="min", high="max").reset_index()
    grid = np.geomspace(ranks[0], ranks[-1], 25)
    whole, layers = [], []
    for line in lines.itertuples():
        name = f"{line.processes} processes"
        whole.append(pd.DataFrame({"rank": grid, "ms": line.alpha_ms + line.slope_ms * grid, "label": name}))
        paper = pd.DataFrame({"rank": grid, "ms": line.eta_ms * grid, "label": name})
        layers += vega.joined(paper, x, y, "label", LOOKS[name].colour)
    fitted = pd.concat(whole)
    looks = {name: look for name, look in LOOKS.items() if name in set(label)}
    shapes = [
        *layers,
        *vega.lines(fitted[fitted["ms"] > marks["ms"].min() / 2], looks, x, y, {}, marks=False),
        *vega.spread(marks, looks, x, y, "y", "low", "high"),
        *vega.points(marks, looks, x, y, {}, size=36),
    ]
    return [View(shapes)]
