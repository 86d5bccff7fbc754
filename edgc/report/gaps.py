"""Loss gaps that were measured, by method, whatever experiment published them.

Without pandas where an index of them is published: `edgc plan` starts fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.report.regime import Regime, regime_of
from edgc.suite.config import CONFIGS, Experiment, Method, available, load, shared_variants

if TYPE_CHECKING:
    import pandas as pd

    from edgc.report.site.contents import Kept

WHOLE = "[!.]*/"  #: folders; what `edgc publish` has not brought to its end begins with a dot
OWN = {"site"}  #: folders under the published results that hold no experiment
INDEX = "gaps.json"  #: under the published results: every gap that counts, by experiment
TABLES = ("accuracy", "credit")  #: of an experiment, that say its gaps; there is no credit without controls


@dataclass(frozen=True)
class Gap:
    """A method's loss gap to dense training (nats), with its 95 % confidence interval."""

    method: str
    model: str
    experiment: str
    gap: float
    low: float
    high: float
    pairs: int
    settings: str  #: with which it was measured, where the method's file has others, such as "every 30"
    optimizer: str  #: what it trains with, if not with AdamW
    baseline: str  #: title of the dense training that its gap is to, if that is not the experiment's baseline
    family: str  #: the method that it is a variant of; empty: none
    resized: bool  #: whether it is that method but for its rank or period
    regime: Regime  #: what it was measured on; nothing is known of an experiment without a file

    @property
    def words(self) -> str:
        """As it is read: what it was measured on, the gap, its interval, where it is published."""
        settings = f", with {self.settings}" if self.settings else ""
        trained = f"; {self.trained}" if self.trained else ""
        resized = f"{self.method}, " if self.resized else ""
        span = f"{signed(self.low)} to {signed(self.high)}, n = {self.pairs}; {self.experiment}{settings}{trained}"
        return f"{resized}{self.regime.words or self.model}: {signed(self.gap)} ({span})"

    @property
    def trained(self) -> str:
        """What it and dense trained with, where that is not AdamW for both; else empty."""
        dense = f"gap to {self.baseline}" if self.baseline else "and dense with adamw"
        return f"trained with {self.optimizer}, {dense}" if self.optimizer else ""


def signed(nats: float, digits: int = 4) -> str:
    """A gap as it is read."""
    return f"{nats:+.{digits}f}".replace("-", "−")


Measured = tuple[Gap, bool]  #: a gap, and whether it decided if the loss is kept


def folders(root: Path) -> dict[str, Path]:
    """Every folder under `results/published` that holds tables, by the experiment's name; empty if there is none."""
    tops = [path for path in sorted(root.glob(WHOLE)) if path.name not in OWN]
    leaves = [leaf for top in tops for leaf in ([top] if _holds(top) else filter(_holds, sorted(top.glob(WHOLE))))]
    return {leaf.relative_to(root).as_posix(): leaf for leaf in leaves}


def some(root: Path) -> dict[str, Path]:
    """The same. Raises `UserError` if there is none."""
    if found := folders(root):
        return found
    raise UserError(f"{root}: holds no published experiment; `edgc publish EXPERIMENT` copies one there")


def _holds(folder: Path) -> bool:
    return (folder / "tables").is_dir() or any(folder.glob("*.csv"))


def published_gaps(root: Path) -> dict[str, Gap]:
    """The `least_favourable` gaps of everything under `results/published`."""
    return least_favourable(published_measured(root))


def published_measured(root: Path, configs: Path = CONFIGS) -> list[Measured]:
    """`measured` of everything under `results/published`, by the index there as far as it is right."""
    known = files.read_json(root / INDEX) if (root / INDEX).is_file() else {}
    rows = [row for own in index_of(root, configs, known).values() for row in own["measured"]]
    return [(Gap(**row["gap"] | {"regime": Regime(**row["gap"]["regime"])}), row["decided"]) for row in rows]


def write_index(root: Path) -> Path:
    """Write the index of gaps of everything under `results/published`, for `published_gaps`. Returns the file."""
    files.write_json(root / INDEX, index_of(root))
    return root / INDEX


def index_of(root: Path, configs: Path = CONFIGS, known: Mapping[str, Any] = {}) -> dict[str, Any]:
    """By experiment that published losses: its gaps, and the hashes of the tables that say them.

    What `known`, an older index, has of the same tables is taken from there, without reading the experiment.
    """
    index = {}
    for name, folder in folders(root).items():
        paths = [folder / "tables" / f"{table}.csv" for table in TABLES]
        if not paths[0].is_file():
            continue
        index[name] = {"sha256": [files.sha256(path) for path in paths if path.is_file()]}
        if index[name]["sha256"] == known.get(name, {}).get("sha256"):
            index[name] = known[name]
        else:
            from edgc.report.site.contents import one

            found = measured([one(folder, name, configs)], configs)
            index[name]["measured"] = [{"gap": asdict(gap), "decided": decided} for gap, decided in found]
    return index


def least_favourable(
    found: Iterable[Measured], configs: Path = CONFIGS, asked: Mapping[str, Regime] | None = None
) -> dict[str, Gap]:
    """Of every method the least favourable gap: the highest upper bound of those with enough seeds.

    One that decided whether the loss is kept goes before one that did not: a wide interval says nothing against a
    method. Then what is nearest to what is `asked` of a method, if anything is; and its variants of another rank or
    period count, too.

    A method with overlap has the gap of the same without, if none was measured: overlap changes when bytes are sent,
    and no number.
    """
    worst: dict[str, tuple[tuple[bool, float, float], Gap]] = {}
    for gap, decided in found:
        for name in {gap.method, gap.family if asked and gap.resized else gap.method}:
            wanted = (asked or {}).get(name) or (asked or {}).get(f"{name}_overlap")
            weight = (decided, -round(wanted.distance(gap.regime), 1) if wanted else 0.0, gap.high)
            if name not in worst or weight > worst[name][0]:
                worst[name] = (weight, gap)
    gaps = {method: gap for method, (_, gap) in worst.items()}
    for name in available(Method, configs):
        same = name.removesuffix("_overlap")
        if name not in gaps and same in gaps:
            gaps[name] = replace(gaps[same], method=name)
    return gaps


def measured(kept: Iterable[Kept], configs: Path = CONFIGS) -> Iterator[Measured]:
    """Every gap that counts.

    Grids of learning rates are left out: their methods are not tuned. So is what is held against another baseline than
    dense, and a method of which a run diverged or failed: the others' gap flatters it. So does another optimizer: what
    has dense training with that as its control (`judgement.controls`) has the gap to this, by table `credit`; what
    trains with Muon and has no such control has none.
    """
    from edgc.report.verdicts import DECIDED, MIN_SEEDS, OPEN, TOO_FEW

    names, shared = available(Method, configs), shared_variants(configs)
    for each in kept:
        table = each.numbers("accuracy")
        own = each.experiment
        if "pairs" not in table:
            continue
        if own is not None and (own.learning_rates or own.judgement.baseline != "dense"):
            continue
        runs = {(spec.model.name, spec.method.name): spec for spec in own.runs(configs)} if own else {}
        variants = shared | (own.variants if own else {})
        judged = table["verdict"].isin([*DECIDED, OPEN, TOO_FEW])
        counts = (table["pairs"] >= MIN_SEEDS) & judged & table["gap_high"].notna()
        for _, row in table[counts].iterrows():
            file = load(Method, row["method"], configs) if row["method"] in names else None
            spec, changes = runs.get((row["model"], row["method"])), variants.get(row["method"], {})
            decided, optimizer, baseline = row["verdict"] in DECIDED, _optimizer(file) if file else "", ""
            control = own.judgement.controls.get(row["method"], "") if own and optimizer else ""
            if control or (file and file.optimizer):
                dense, row = runs.get((row["model"], control)), _credited(each, row)
                if row is None or dense is None or not _is_dense(dense.method):
                    continue
                baseline, decided = dense.method.title, not row["gap_low"] <= each.margin < row["gap_high"]
            gap = Gap(
                str(row["method"]), str(row["model"]), each.name,
                float(row["gap"]), float(row["gap_low"]), float(row["gap_high"]), int(row["pairs"]),
                _settings(own, file) if own and file else "", optimizer, baseline,
                changes.get("of", ""), _resizes(changes),
                regime_of(spec) if spec else Regime(),
            )  # fmt: skip
            yield gap, decided


def _is_dense(method: Method) -> bool:
    """Whether it averages every gradient as it is, and leaves the update to an optimizer."""
    return (method.aggregator.name, method.synchronisation.name) == ("dense", "every_step")


def _credited(each: Kept, row: pd.Series) -> pd.Series | None:
    """Of the same method, what table `credit` says; None if too few seeds have its control, too."""
    from edgc.report.verdicts import MIN_SEEDS

    if (credit := each.numbers("credit")).empty:
        return None
    same = credit[(credit["method"] == row["method"]) & (credit["model"] == row["model"])]
    return next((one for _, one in same.iterrows() if one["pairs"] >= MIN_SEEDS), None)


def _resizes(variant: Mapping[str, Any]) -> bool:
    """Whether it changes no more of its method than a rank, or how often it exchanges."""
    changed = {key: value for key, value in variant.items() if key not in ("of", "title")}
    amounts = {"policy": {"rank", "max_rank"}, "synchronisation": {"every"}}
    return bool(variant) and all(part in amounts and names.keys() <= amounts[part] for part, names in changed.items())


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
