"""What each part of the paper's method contributes: the method without it against the whole, seed by seed."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from edgc.report import verdicts
from edgc.report.render import NOTHING
from edgc.report.study import Line, Study, lines, paired, steady


class Quantity(NamedTuple):
    """Something that a part may change: its column, how it is printed and what it is called in a verdict."""

    name: str
    heading: str
    unit: str
    scale: float  #: printed value = scale × the column's
    decimals: int
    words: str
    timed: bool = False


QUANTITIES = (
    Quantity("loss", "Validation loss", "nats", 1, 4, "loss"),
    Quantity("payload_bytes", "Payload (MB)", "MB", 1e-6, 1, "payload"),
    Quantity("entropy_s", "Entropy (ms/step)", "ms", 1e3, 3, "entropy", timed=True),
    Quantity("exchange_s", "Encode + wire + decode (ms)", "ms", 1e3, 2, "exchange", timed=True),
    Quantity("apart_s", "Stage ends apart (ms)", "ms", 1e3, 2, "stage ends apart", timed=True),
)

#: Runs are not interleaved: what else the machine does changes their times by up to a third. A smaller ratio of two
#: means says nothing of the parts, whatever the spread over seeds.
TOLD_RATIO = 1.5

TITLE = "What each part contributes"

CAPTION = {
    "All numbers": "of finished runs, mean over seeds",
    "Seeds": "runs that finished",
    "Validation loss": "final, in nats a token",
    "Gap": "loss less the whole method's of the same seed: mean ± standard deviation",
    "Payload": "gradient bytes that all ranks handed over in a run; MB = 10⁶ bytes",
    "Entropy": "sampling and agreement: mean over steps on the first pipeline stage",
    "Encode + wire + decode": "median over a run's compressed steps",
    "Stage ends apart": "from the end of the first stage's exchange to the end of the last stage's: median over a "
    "run's compressed steps",
    "Without it": "every difference to the whole method whose 95 % confidence interval over seeds (Student's t, at "
    f"least {verdicts.MIN_SEEDS} pairs) leaves zero out. Times must also differ by a factor of {TOLD_RATIO:g}: runs "
    "follow one another on this machine and link",
}


def build(study: Study) -> pd.DataFrame:
    """One row the whole method and one a part left out: seeds, each of `QUANTITIES` with its difference `_change`.

    Changes are means over pairs of seeds, with `_low` and `_high` of their 95 % confidence interval; `contributes`
    says in words which of them are larger than chance.
    """
    found = [line for line in lines(study.frames.runs) if is_part(line.method, study)]
    return pd.DataFrame([_row(line, study) for line in found], columns=_columns())


def is_part(method: str, study: Study) -> bool:
    """Whether it is the paper's method or one named `<the paper's method>_no_<part>`."""
    whole = study.reference.method
    return method == whole or method.startswith(f"{whole}_no_")


def _columns() -> list[str]:
    columns = ["model", "method", "title", "device", "status", "seeds", "pairs", "loss_change_sd", "contributes"]
    return columns + [q.name + suffix for q in QUANTITIES for suffix in ("", "_change", "_low", "_high")]


def _row(line: Line, study: Study) -> dict[str, object]:
    own = by_seed(line, study)
    changes = {q.name: change(line, q.name, study) for q in QUANTITIES}
    row: dict[str, object] = {**line.identity, "seeds": len(own), "pairs": len(changes["loss"])}
    for name, differences in changes.items():
        mean, low, high = verdicts.interval(differences)
        row |= {name: own[name].mean(), f"{name}_change": mean, f"{name}_low": low, f"{name}_high": high}
    row["loss_change_sd"] = changes["loss"].std()
    row["contributes"] = None if line.method == study.reference.method else contributes(own, changes)
    return row


def change(line: Line, name: str, study: Study) -> pd.Series:
    """One of `QUANTITIES` less the whole method's of the same seed."""
    pairs = paired(*(by_seed(run, study)[name] for run in (line, whole_of(line, study))))
    return pairs["own"] - pairs["reference"]


def whole_of(line: Line, study: Study) -> Line | None:
    """The whole method on the line's model and hardware; None if it was not run there."""
    same = (
        other
        for other in lines(study.frames.runs)
        if (other.model, other.method, other.device) == (line.model, study.reference.method, line.device)
    )
    return next(same, None)


def by_seed(line: Line | None, study: Study) -> pd.DataFrame:
    """`QUANTITIES` of a line's finished runs, by seed; NaN where they were not measured."""
    names = [q.name for q in QUANTITIES]
    if line is None:
        return pd.DataFrame(columns=names, dtype=float)
    done = line.done.set_index("seed")
    steps = study.frames.steps[study.frames.steps["run_id"].isin(done["run_id"])]
    counted = steady(steps)
    compressed = counted[counted["payload_bytes"] < counted["dense_bytes"]]
    exchange = compressed[["t_encode", "t_wire", "t_decode"]].sum(axis=1, skipna=False)
    ends = compressed["t_last_stage_end"] - compressed["t_first_stage_end"]
    columns = {
        "loss": done["validation_loss"],
        "payload_bytes": steps.groupby("seed")["payload_bytes"].sum(),
        "entropy_s": counted.groupby("seed")["t_entropy"].mean(),  # few steps sample: a median would be 0
        "exchange_s": exchange.groupby(compressed["seed"]).median(),
        "apart_s": ends.groupby(compressed["seed"]).median().abs(),
    }
    return pd.DataFrame(columns, index=done.index).astype(float)


def contributes(own: pd.DataFrame, changes: dict[str, pd.Series]) -> str:
    """What happens without a part, in words: the changes that are larger than chance (see `CAPTION`)."""
    if max(map(len, changes.values())) < verdicts.MIN_SEEDS:
        return verdicts.TOO_FEW
    found = [_told(q, changes[q.name]) for q in QUANTITIES if _beyond_chance(q, own[q.name], changes[q.name])]
    return ", ".join(found) or "no difference beyond the spread over seeds"


def _beyond_chance(quantity: Quantity, own: pd.Series, differences: pd.Series) -> bool:
    _, low, high = verdicts.interval(differences)
    beyond = len(differences) >= verdicts.MIN_SEEDS and bool(low > 0 or high < 0)
    if not (beyond and quantity.timed):
        return beyond
    without, whole = own.mean(), own.mean() - differences.mean()
    return bool(max(without, whole) > TOLD_RATIO * min(without, whole))


def _told(quantity: Quantity, differences: pd.Series) -> str:
    return f"{quantity.words} {differences.mean() * quantity.scale:+.{quantity.decimals}f} {quantity.unit}".replace(
        "-", "−"
    )


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read."""
    shown = pd.DataFrame({"Model": table["model"], "Method": table["title"], "Status": table["status"]})
    shown["Hardware"] = table["device"]
    shown["Seeds"] = table["seeds"]
    for quantity in QUANTITIES:
        shown[quantity.heading] = [_number(n * quantity.scale, quantity.decimals) for n in table[quantity.name]]
        if quantity.name == "loss":
            shown["Gap"] = [_gap(row) for _, row in table.iterrows()]
    shown["Without it"] = table["contributes"]
    return shown


def _number(value: float, decimals: int) -> str:
    return NOTHING if pd.isna(value) else f"{value:.{decimals}f}"


def _gap(row: pd.Series) -> str:
    if pd.isna(row["contributes"]) or pd.isna(row["loss_change"]):
        return NOTHING
    spread = f" ± {row['loss_change_sd']:.4f}" if row["pairs"] > 1 else ""
    return f"{row['loss_change']:+.4f}{spread}".replace("-", "−")
