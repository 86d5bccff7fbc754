"""What each part of the paper's method contributes: the method without it against the whole, seed by seed."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from edgc.report import verdicts
from edgc.report.render import NOTHING, gap, number, with_deviation
from edgc.report.study import Line, Study, baseline_among, framed, lines, paired, steady
from edgc.report.table import IDENTITY, Column, Table


class Quantity(NamedTuple):
    """Something that a part may change: its column, how it is printed and what it is called in a verdict."""

    name: str
    heading: str
    unit: str  #: of the heading
    scale: float  #: printed value = scale × the column's
    decimals: int
    words: str
    timed: bool = False

    def told(self, value: float, sign: str = "") -> str:
        """A value as it is printed."""
        return number(self.scale * value, f"{sign}.{self.decimals}f")

    @property
    def column(self) -> Column:
        return Column(self.heading, self.name, self.told, self.unit)


LOSS = Quantity("loss", "Validation loss", "", 1, 4, "loss")
PAYLOAD = Quantity("payload_bytes", "Payload", "MB", 1e-6, 1, "payload")
ENTROPY = Quantity("entropy_s", "Entropy", "ms/step", 1e3, 3, "entropy", timed=True)
EXCHANGE = Quantity("exchange_s", "Encode + wire + decode", "ms", 1e3, 2, "exchange", timed=True)
APART = Quantity("apart_s", "Stage ends apart", "ms", 1e3, 2, "stage ends apart", timed=True)
QUANTITIES = (LOSS, PAYLOAD, ENTROPY, EXCHANGE, APART)

#: Runs are not interleaved: what else the machine does changes their times by up to a third. A smaller ratio of two
#: means says nothing of the parts, whatever the spread over seeds.
TOLD_RATIO = 1.5


def build(study: Study) -> pd.DataFrame:
    """One row the whole method and one a part left out: seeds, each of `QUANTITIES` with its difference `_change`.

    Changes are means over pairs of seeds, with `_low` and `_high` of their 95 % confidence interval; `contributes`
    says in words which of them are larger than chance.
    """
    found = [_row(line, study) for line in lines(study.frames.runs) if is_part(line.method, study)]
    numbers = [q.name + suffix for q in QUANTITIES for suffix in ("", "_change", "_low", "_high")]
    return framed(found, "seeds", "pairs", "loss_change_sd", "contributes", *numbers)


def is_part(method: str, study: Study) -> bool:
    """Whether it is the paper's method or one named `<the paper's method>_no_<part>`."""
    whole = study.reference.method
    return method == whole or method.startswith(f"{whole}_no_")


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
    return baseline_among(line, study.frames.runs, study.reference.method)


def by_seed(line: Line | None, study: Study) -> pd.DataFrame:
    """`QUANTITIES` of a line's finished runs, by seed; NaN where they were not measured."""
    names = [q.name for q in QUANTITIES]
    if line is None:
        return pd.DataFrame(columns=names, dtype=float)
    done = line.done.set_index("seed")
    steps = line.done_of(study.frames.steps)
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
    """What happens without a part, in words: the changes that are larger than chance (see `TABLE`)."""
    if max(map(len, changes.values())) < verdicts.MIN_SEEDS:
        return verdicts.TOO_FEW
    found = [
        f"{q.words} {q.told(changes[q.name].mean(), '+')} {q.unit.removesuffix('/step') or 'nats'}"
        for q in QUANTITIES
        if _beyond_chance(q, own[q.name], changes[q.name])
    ]
    return ", ".join(found) or "no difference beyond the spread over seeds"


def _beyond_chance(quantity: Quantity, own: pd.Series, differences: pd.Series) -> bool:
    _, low, high = verdicts.interval(differences)
    beyond = len(differences) >= verdicts.MIN_SEEDS and bool(low > 0 or high < 0)
    if not (beyond and quantity.timed):
        return beyond
    without, whole = own.mean(), own.mean() - differences.mean()
    return bool(max(without, whole) > TOLD_RATIO * min(without, whole))


def _gap(row: pd.Series) -> str:
    return NOTHING if pd.isna(row["contributes"]) else with_deviation(row, "loss_change", gap)


PARTS = Table(
    "What each part contributes",
    str(__doc__),
    build,
    {
        "All numbers": "of finished runs, mean over seeds",
        **IDENTITY,
        Column("Seeds", "seeds"): "runs that finished",
        LOSS.column: "final, in nats a token",
        Column("Gap", _gap): "loss less the whole method's of the same seed: mean ± standard deviation",
        PAYLOAD.column: "gradient bytes that all ranks handed over in a run; MB = 10⁶ bytes",
        ENTROPY.column: "sampling and agreement: mean over steps on the first pipeline stage",
        EXCHANGE.column: "median over a run's compressed steps",
        APART.column: "from the end of the first stage's exchange to the end of the last stage's: median over a run's "
        "compressed steps",
        Column("Without it", "contributes"): "every difference to the whole method whose 95 % confidence interval over "
        f"seeds (Student's t, at least {verdicts.MIN_SEEDS} pairs) leaves zero out. Times must also differ by a factor "
        f"of {TOLD_RATIO:g}: runs follow one another on this machine and link",
    },
)
