"""`edgc bench lossless` as a table and in words: what a coder gets out of what ranks send, and whether it pays."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from edgc.report.render import cell

FLOATS = ("fp32 gradients", "fp32 mean gradients", "bf16 gradients", "bf16 mean gradients")
MBIT = 8e-6  #: of a byte

CAPTION = {
    "Step": "of training, from 1; its gradients come before its update",
    "Raw": "bytes an element as it travels; an element is a gradient's, a factor's, or one that Top-K keeps",
    "zstd": "bytes an element by zstd as it comes (level 3), of the bytes as they lie",
    "Planes": "by zstd in byte planes, as `lossless` has it sent; % is of raw",
    "Bound": "by an ideal coder of single bytes with one table a plane (entropy of order 0); zstd can be below it, as "
    "it makes a new table every 128 KB, and where bytes repeat",
    "Random": "share of the bytes in planes with 7.8 of 8 bits of entropy or more",
    "Encode, decode": "MB of raw bytes a second, byte planes and zstd together, on one core of the machine in the "
    "manifest",
}


def answers(rows: pd.DataFrame) -> list[str]:
    """One sentence a line: how far gradients shrink, what is left to gain, whether it pays, and what codes leave."""
    by_kind = dict(iter(rows.groupby("what", sort=False)))
    own, rounded = by_kind["fp32 gradients"], by_kind["bf16 gradients"]
    found = [
        f"Of {kind}, zstd in byte planes leaves {_share(by_kind[kind], 'planes')} of the bytes, and zstd as it comes "
        f"{_share(by_kind[kind], 'zstd')}. An ideal coder of single bytes with one table a plane would leave "
        f"{_share(by_kind[kind], 'planes_bound')}."
        for kind in FLOATS
    ]
    more = "more" if rounded["raw"].max() < own["planes"].min() else "no more"
    found += [
        f"Rounding to bf16 saves {more} than coding fp32 without loss: {cell(rounded['raw'].max())} bytes an element "
        f"travel, not {_range(own['planes'], cell)}.",
        f"LM-GC asks what a better model of gradients is worth to the coder. {_range(own['random'], _percent)} of an "
        "fp32 gradient's bytes look random by themselves. A coder that knew all others beforehand would still send "
        "these, unless it predicts an element's mantissa from other elements.",
        "ZipCCL asks whether coding makes collectives faster.",
        *(_pays(by_kind[kind]) for kind in ("fp32 gradients", "bf16 gradients")),
    ]
    return found + [
        f"Of {what}, {_share(group, 'planes')} of the bytes are left: {_range(group['planes'], cell)} bytes an element "
        f"in the place of {cell(group['raw'].max())}."
        for what, group in by_kind.items()
        if what not in FLOATS
    ]


def _pays(group: pd.DataFrame) -> str:
    """A coded byte takes time at both ends, and what is saved does not take the link's."""
    left = group["planes"] / group["raw"]
    link = (1 - left) / (1 / group["encode"] + 1 / group["decode"])
    what = group["what"].iloc[0]
    return (
        f"However fast the coder, {what} travel {_range(1 / left, cell)} times as fast at most. With this one, if one "
        f"core codes, sends and decodes in turn, they are faster on links below {_range(link * MBIT, cell)} Mbit/s."
    )


def _share(group: pd.DataFrame, column: str) -> str:
    return _range(group[column] / group["raw"], _percent)


def _range(values: pd.Series, written: Callable[[float], str]) -> str:
    low, high = written(values.min()), written(values.max())
    return low if low == high else f"{low} to {high}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def present(rows: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read; see `CAPTION`."""
    ordered = pd.concat([group for _, group in rows.groupby("what", sort=False)])
    return pd.DataFrame(
        {
            "What": ordered["what"],
            "Step": ordered["step"],
            "Raw": ordered["raw"].map(cell),
            "zstd": ordered["zstd"].map(cell),
            "Planes": ordered["planes"].map(cell),
            "%": (100 * ordered["planes"] / ordered["raw"]).map(cell),
            "Bound": ordered["planes_bound"].map(cell),
            "Random": ordered["random"].map(_percent),
            "Encode": (ordered["encode"] / 1e6).map(cell),
            "Decode": (ordered["decode"] / 1e6).map(cell),
        }
    )
