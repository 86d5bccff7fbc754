"""`edgc bench owners` in words and as a table: does TAGC pay where parameters are sharded, and what would?"""

from __future__ import annotations

import pandas as pd

from edgc.report.render import cell

RATES = {"20 Mbit/s": 20e6, "50 Mbit/s": 50e6, "200 Mbit/s": 200e6, "1 Gbit/s": 1e9}
TITLES = {
    "dense": "fp32 (FSDP)",
    "dense_bf16": "bf16",
    "int8": "int8",
    "int4": "int4",
    "loco": "LoCo",
    "zeropp": "ZeRO++ qgZ",
    "bitmap_values": "bitmap + int8 values",
    "tagc": "TAGC",
    "tagc_released": "TAGC (released)",
}
CLAIM = 0.15  #: of FSDP's step, which TAGC's paper says it saves at best (arXiv 2504.05638)
LOST = 0.01  #: a sketch that gets more of the union wrong than this is not lossless
GATHERS = 2  #: of all parameters, in fp32, in a step of FSDP: for forward and for backward

CAPTION = {
    "Bytes": "an element, that a rank sends so that each owner has its average; the ledger's, mean over ranks",
    "Error": "‖output − mean of what ranks had to tell‖ / ‖that mean‖, gradients and error feedback. What is not sent "
    "now counts, and comes later",
    "Union": "share of the elements that any rank sends; a sketch has to hold it",
    "Wrong": "share of the union that did not come out of the sketch",
    "Encode, decode": "milliseconds of one core for all elements, the slowest rank's",
    "At a rate": "seconds to encode, send and decode, nothing overlapped",
}


def seconds(rows: pd.DataFrame, rate: float) -> pd.Series:
    """Of an exchange at a rate in bits a second."""
    return rows["encode"] + rows["decode"] + 8 * rows["bytes"] * rows["elements"] / rate


def answers(rows: pd.DataFrame) -> list[str]:
    """One sentence a line: lossless or not, faster or not, by how much at best, and what is best."""
    found = []
    tagc = rows[rows["method"] == "tagc"].to_dict("records")
    sizes = [row["ranks"] for row in tagc]
    unions = ", ".join(f"{row['union']:.2f} for {row['ranks']}" for row in tagc)
    found.append(f"With TAGC's defaults the union of ranks is {unions}.")
    whole = [str(row["ranks"]) for row in tagc if row["left"] <= LOST]
    wrong = ", ".join(f"{row['left']:.0%} for {row['ranks']} ranks" for row in tagc)
    lossless = f"holds for {' and '.join(whole)} ranks only" if whole else "holds for no number of ranks here"
    found.append(f"“Lossless” {lossless}: what did not come out of the sketch, of the union, is {wrong}.")
    for name in ("tagc", "tagc_released"):
        for label, rate in RATES.items():
            told = ", ".join(f"{_percent(_saved(rows, name, size, rate))} for {size}" for size in sizes)
            found.append(
                f"At {label} {TITLES[name]} changes the time of a step that is FSDP's traffic alone by {told} ranks."
            )
    every = [(size, rate) for size in sizes for rate in RATES.values()]
    least, most = (of(_saved(rows, "tagc", *each) for each in every) for of in (min, max))
    plain = min(_saved(rows, "dense_bf16", *each) for each in every)
    verdict = "is within reach" if -least >= CLAIM else "is out of reach"
    found.append(
        f"“Up to {CLAIM:.0%} faster than FSDP” {verdict} on these links: TAGC changes such a step by "
        f"{_percent(least)} at best and by {_percent(most)} at worst; bf16, which needs no method, by "
        f"{_percent(plain)} at best."
    )
    for label, rate in RATES.items():
        best = []
        for size in sizes:
            group = rows[rows["ranks"] == size]
            best.append(f"{TITLES[group['method'].iloc[int(seconds(group, rate).argmin())]]} for {size}")
        found.append(f"What is fastest at {label}: {', '.join(best)} ranks.")
    return found


def _percent(change: float) -> str:
    return f"{change:+.0%}".replace("-", "−").replace("%", " %")


def _saved(rows: pd.DataFrame, method: str, ranks: int, rate: float) -> float:
    """By how much a step is longer than FSDP's in fp32, as a share of it, if it is traffic and codes only."""
    group = rows[rows["ranks"] == ranks].set_index("method")
    parameters = GATHERS * 4 * (ranks - 1) / ranks * group["elements"] * 8 / rate
    step = seconds(group, rate) + parameters
    return float(step[method] / step["dense"] - 1)


def present(rows: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read; see `CAPTION`."""
    fixed = {
        "Ranks": rows["ranks"],
        "Method": rows["method"].map(TITLES),
        "Bytes": rows["bytes"].map(cell),
        "Error": rows["error"].map(cell),
        "Union": rows["union"].map(cell),
        "Wrong": rows["left"].map(cell),
        "Encode": (1e3 * rows["encode"]).map(cell),
        "Decode": (1e3 * rows["decode"]).map(cell),
    }
    return pd.DataFrame(fixed | {label: seconds(rows, rate).map(cell) for label, rate in RATES.items()})
