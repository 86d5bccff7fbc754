"""Loss gaps that were measured, by method, whatever experiment published them.

Without pandas where an index of them is published: `edgc plan` starts fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.suite.config import CONFIGS, Experiment, Method, available, load

if TYPE_CHECKING:
    from edgc.report.site.contents import Kept

OWN = {"site"}  #: folders under the published results that hold no experiment
INDEX = "gaps.json"  #: under the published results: every gap that counts, by experiment
TABLE = Path("tables") / "accuracy.csv"  #: of an experiment, that says its gaps


@dataclass(frozen=True)
class Gap:
    """A method's loss gap to its baseline (nats), with its 95 % confidence interval."""

    method: str
    model: str
    experiment: str
    gap: float
    low: float
    high: float
    pairs: int
    settings: str  #: with which it was measured, where the method's file has others, such as "every 30"
    replicas: int | None  #: that shared a global batch, where that changes the method's loss; None: it does not
    optimizer: str  #: what it trains with, if not as dense does: its gap is that optimizer's, too

    @property
    def words(self) -> str:
        """As it is read."""
        span = f"{self.gap:+.4f} ({self.low:+.4f} to {self.high:+.4f})".replace("-", "−")
        settings = f", with {self.settings}" if self.settings else ""
        many = f" with {self.replicas} replicas" if self.replicas else ""
        trained = f"; trained with {self.optimizer}, and dense with adamw" if self.optimizer else ""
        return f"{span}, n = {self.pairs}, {self.model}{many}, {self.experiment}{settings}{trained}"

    def within(self, margin: float) -> bool:
        """Whether the whole interval lies below a margin (nats)."""
        return self.high <= margin


Measured = tuple[Gap, bool]  #: a gap, and whether it decided if the loss is kept


def folders(root: Path) -> dict[str, Path]:
    """Every folder under `results/published` that holds tables, by the experiment's name; empty if there is none."""
    tops = [path for path in sorted(root.glob("*")) if path.is_dir() and path.name not in OWN]
    leaves = [leaf for top in tops for leaf in ([top] if _holds(top) else filter(_holds, sorted(top.glob("*/"))))]
    return {leaf.relative_to(root).as_posix(): leaf for leaf in leaves}


def some(root: Path) -> dict[str, Path]:
    """The same. Raises `UserError` if there is none."""
    if found := folders(root):
        return found
    raise UserError(f"{root}: holds no published experiment; `edgc publish EXPERIMENT` copies one there")


def _holds(folder: Path) -> bool:
    return (folder / "tables").is_dir() or any(folder.glob("*.csv"))


def published_gaps(root: Path, configs: Path = CONFIGS, replicas: int | None = None) -> dict[str, Gap]:
    """The `least_favourable` gaps of everything under `results/published`, by the index there as far as it is right."""
    known = files.read_json(root / INDEX) if (root / INDEX).is_file() else {}
    rows = [row for own in index_of(root, configs, known).values() for row in own["measured"]]
    return least_favourable([(Gap(**row["gap"]), row["decided"]) for row in rows], configs, replicas)


def write_index(root: Path, configs: Path = CONFIGS) -> Path:
    """Write the index of gaps of everything under `results/published`, for `published_gaps`. Returns the file."""
    files.write_json(root / INDEX, index_of(root, configs))
    return root / INDEX


def index_of(root: Path, configs: Path = CONFIGS, known: Mapping[str, Any] = {}) -> dict[str, Any]:
    """By experiment that published losses: its gaps, and the hash of the table that says them.

    What `known`, an older index, has of the same table is taken from there, without reading the experiment.
    """
    index = {}
    for name, folder in folders(root).items():
        if not (folder / TABLE).is_file():
            continue
        index[name] = {"sha256": files.sha256(folder / TABLE)}
        if index[name]["sha256"] == known.get(name, {}).get("sha256"):
            index[name] = known[name]
        else:
            from edgc.report.site.contents import one

            found = measured([one(folder, name, configs)], configs)
            index[name]["measured"] = [{"gap": asdict(gap), "decided": decided} for gap, decided in found]
    return index


def least_favourable(found: Iterable[Measured], configs: Path = CONFIGS, replicas: int | None = None) -> dict[str, Gap]:
    """Of every method the least favourable gap: the highest upper bound of those with enough seeds.

    One that decided whether the loss is kept goes before one that did not: a wide interval says nothing against a
    method. Before both goes what was measured with the nearest number of `replicas`, where it is given and the method
    exchanges less often or late: the more replicas then share a global batch, the larger its gap.

    A method with overlap has the gap of the same without, if none was measured: overlap changes when bytes are sent,
    and no number.
    """
    worst: dict[str, tuple[tuple[float, bool, float], Gap]] = {}
    for gap, decided in found:
        near = -abs(log2(gap.replicas / replicas)) if gap.replicas and replicas else 0.0
        weight = (near, decided, gap.high)
        if gap.method not in worst or weight > worst[gap.method][0]:
            worst[gap.method] = (weight, gap)
    gaps = {method: gap for method, (_, gap) in worst.items()}
    for name in available(Method, configs):
        same = name.removesuffix("_overlap")
        if name not in gaps and same in gaps:
            gaps[name] = replace(gaps[same], method=name)
    return gaps


def measured(kept: Iterable[Kept], configs: Path = CONFIGS) -> Iterator[Measured]:
    """Every gap that counts.

    Grids of learning rates are left out: their methods are not tuned. So is what is held against another baseline than
    dense.
    """
    from edgc.report.verdicts import DECIDED, MIN_SEEDS

    names = available(Method, configs)
    for each in kept:
        table = each.numbers("accuracy")
        own = each.experiment
        if "pairs" not in table:
            continue
        if own is not None and (own.learning_rates or own.judgement.baseline != "dense"):
            continue
        counts = (table["pairs"] >= MIN_SEEDS) & (table["verdict"] != "baseline") & table["gap_high"].notna()
        for _, row in table[counts].iterrows():
            file = load(Method, row["method"], configs) if row["method"] in names else None
            gap = Gap(
                str(row["method"]), str(row["model"]), each.name,
                float(row["gap"]), float(row["gap_low"]), float(row["gap_high"]), int(row["pairs"]),
                _settings(own, file) if own and file else "",
                own.parallel.data if own and file and not file.in_every_step else None,
                _optimizer(file) if file else "",
            )  # fmt: skip
            yield gap, row["verdict"] in DECIDED


def _optimizer(file: Method) -> str:
    """That its file asks for, or the method's own where it updates parameters itself; else empty."""
    return file.optimizer or (file.name if file.synchronisation.updates else "")  # type: ignore[attr-defined]


def _settings(experiment: Experiment, file: Method) -> str:
    """What an experiment changes of a method's own file."""
    changes, own = experiment.overrides.get(file.name, {}).get("method", {}), file.model_dump()
    return ", ".join(
        f"{name} {value}"
        for group in ("synchronisation", "aggregator", "policy")
        for name, value in changes.get(group, {}).items()
        if own[group].get(name) != value
    )
