"""`edgc bench sketches` in words and as a table: whether a sketch pays, and where."""

from __future__ import annotations

import pandas as pd

from edgc.report.render import cell

#: Ways to send the same that are no sketch.
PLAIN = {
    "bf16": "dense in bf16",
    "bitmap_fp32": "bitmap + fp32 values",
    "bitmap_int8": "bitmap + int8 values",
    "pairs": "(index, value) pairs",
}
LOST = 0.01  #: a sketch that gets more of the union wrong than this did not send the gradient
LAYOUTS = {"replicated": "all ranks", "to_owner": "one rank"}  #: that need an element's average


CAPTION = {
    "Kept": "share of its elements that a rank is to send; what it keeps back is added to its next gradient",
    "Sent": "share that it sends: TAGC's released threshold lets more pass",
    "Union": "share of the elements that any rank sends",
    "Cells": "of the sketch, for each element of the union. The least sketch has what theory asks for in the limit, "
    "and knows the union beforehand: arithmetic, and no sketch of fp32 cells is smaller",
    "Wrong": "share of the union whose average is off by more than a thousandth of the union's root mean square",
    "Error": "‖output − mean of what was sent‖ / ‖mean of what was sent‖; an output of zeros has 1",
    "Bytes": "bytes an element that a rank sends on the wire, and their ratio to bf16's; the average is needed on all "
    "ranks, or each element's on one (to owner). Sketches: the ledger's. Plainer codes: arithmetic on the same union; "
    "what int8 rounds off is not measured",
}


def answers(rows: pd.DataFrame) -> list[str]:
    """One sentence a line: how far unions grow, what comes out, where bytes are saved, and whether it pays."""
    sketches = rows[~rows["method"].isin(PLAIN)]
    found, pays = [], []
    for ratio, group in sketches[sketches["method"] == "lhc"].groupby("ratio", sort=False):
        unions = ", ".join(f"{row.union:.3f} for {row.ranks}" for row in group.itertuples())
        found.append(f"If a rank sends {ratio:.0%} of its elements, the union of ranks is {unions}.")
    for name, group in sketches.groupby("method", sort=False):
        whole = group[group["left"] <= LOST]
        title = "the least sketch" if name == "least" else name
        found.append(
            f"At least {1 - LOST:.0%} of the union comes out right with {title} in {_where(whole, len(group))}."
        )
        for layout, need in LAYOUTS.items() if len(whole) else ():
            cheaper = {plain: whole[whole[layout] < _matching(whole, rows, plain)[layout]] for plain in PLAIN}
            told = [f"{PLAIN[p]} in {_where(cases, len(group))}" for p, cases in cheaper.items() if len(cases)]
            found.append(f"Where {need} must have an average, {title} then sends {_listed(told)}.")
            best = pd.concat([_matching(whole, rows, plain)[layout] for plain in PLAIN], axis=1).min(axis=1)
            pays += [
                f"{name}, {row.ranks} ranks at {row.ratio:.0%}" for row in whole[whole[layout] < best].itertuples()
            ]
    where = f"pays for {'; '.join(dict.fromkeys(pays))}" if pays else "does not pay anywhere here"
    return [*found, f"A sketch {where}: it pays where it is right and sends fewer bytes than every plainer code."]


def _matching(sketches: pd.DataFrame, rows: pd.DataFrame, plain: str) -> pd.DataFrame:
    """The rows of a plainer code for the same ranks and ratio, under the sketches' own row numbers."""
    keys = ["ranks", "ratio"]
    return sketches[keys].merge(rows[rows["method"] == plain], on=keys, how="left").set_index(sketches.index)


def _listed(told: list[str]) -> str:
    return f"fewer bytes than {', and than '.join(told)}" if told else "no fewer bytes than any plainer code"


def _where(cases: pd.DataFrame, of: int) -> str:
    named = "; ".join(f"{row.ranks} ranks at {row.ratio:.0%}" for row in cases.itertuples())
    return f"{len(cases)} of {of} cases" + (f" ({named})" if 0 < len(cases) < of else "")


def present(rows: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read; see `CAPTION`."""
    dense = rows[rows["method"] == "bf16"].set_index("ranks")
    dense = dense[~dense.index.duplicated()]
    return pd.DataFrame(
        {
            "Ranks": rows["ranks"],
            "Kept": rows["ratio"].map("{:.0%}".format),
            "Method": rows["method"].replace(PLAIN | {"least": "least sketch"}),
            "Sent": rows["sent"].map(cell),
            "Union": rows["union"].map(cell),
            "Cells": rows["cells"].map(cell),
            "Wrong": rows["left"].map(cell),
            "Error": rows["error"].map(cell),
            "Bytes": rows["replicated"].map(cell),
            "of bf16": (rows["replicated"] / rows["ranks"].map(dense["replicated"])).map(cell),
            "Bytes to owner": rows["to_owner"].map(cell),
            "of bf16 to owner": (rows["to_owner"] / rows["ranks"].map(dense["to_owner"])).map(cell),
        }
    )
