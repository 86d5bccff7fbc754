"""Does compressing gradients pay on this cluster? What each method takes, what limits it, and how sure that is."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from edgc.core.base.errors import UserError
from edgc.core.policies.amounts import Rank
from edgc.core.policies.policy import Decision
from edgc.core.settings.method import EVERY_STEP
from edgc.core.settings.settings import validate
from edgc.suite.cluster.ask import of_method
from edgc.suite.cluster.compute import check_precision
from edgc.suite.cluster.memory import check_memory
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.trajectory import Trajectory
from edgc.suite.cluster.whole_run import WholeRun, simulate
from edgc.suite.config import Calibration, Method, RunSpec

SENSITIVE = ("link_efficiency", "gemm_efficiency", "thin_tflops")  #: what the saving depends on most
DEVIATION = 0.2  #: of each of them, up and down
CLEAR = 0.5  #: points of saving that count as none
HIGHEST_GBIT, LOWEST_GBIT = 1e5, 1e-4
UTILISATIONS = (50, 80, 95)  #: percent of a step that is not spent on the exchange of gradients


@dataclass(frozen=True)
class Forecast:
    """One method on the cluster."""

    method: str
    title: str
    iteration_s: float  #: mean over the run
    floor_s: float  #: without exchange of gradients
    settled: dict[str, float]  #: parts of a step once the policy has settled, in seconds; `gather` only with shards
    latency_s: dict[str, float]  #: communication latency by definition, mean over the run
    days: float
    amounts: tuple[float | None, ...]  #: mean rank, ratio or bits by stage, once settled; None: has no number
    candidate: bool  #: whether it may be the answer: it compresses something, or exchanges less often or later
    saving_percent: float  #: of the run's time, against the fastest dense method
    low_percent: float  #: the lowest saving when the `SENSITIVE` rates are off by a fifth
    high_percent: float  #: the highest
    saving_fp32_percent: float  #: the same against dense in fp32
    latency_reduction_percent: dict[str, float]  #: against dense in fp32, by definition
    break_even_gbit: float | None  #: link on which it is as fast as the fastest dense method; None: there is none
    utilisation_percent: float  #: share of a mean step that one without exchange takes, on links of any rate
    needs_gbit: dict[int, float]  #: link from which on such a share is reached: 0 on every link, infinity on none
    highest_rank: int | None  #: up to this rank it is faster than that; None: at no rank, or it has none
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """All methods, in the order asked for, and the verdict."""

    forecasts: tuple[Forecast, ...]
    baseline: str  #: the fastest method that compresses nothing
    baseline_s: float
    dense_s: float  #: dense in fp32
    bound_percent: float  #: what no exchange of gradients at all would save against dense in fp32
    gpus: int

    @property
    def verdict(self) -> str:
        """pays, does not pay, or undecided: of the fastest method that compresses."""
        forecast = self.candidate
        if forecast is None or forecast.high_percent < CLEAR:
            return "does not pay"
        return "pays" if forecast.low_percent >= CLEAR else "undecided"

    @property
    def candidate(self) -> Forecast | None:
        """The fastest of the methods that compress."""
        compressing = [f for f in self.forecasts if f.candidate]
        return min(compressing, key=lambda f: f.iteration_s, default=None)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        forecast, baseline = self.candidate, self.by_name(self.baseline).title
        if forecast is None:
            return "does not pay: no method that was asked for compresses anything on these links"
        span = f"{forecast.low_percent:.1f} to {forecast.high_percent:.1f} %"
        if self.verdict == "pays":
            return f"pays: {forecast.title} takes {span} less time than {baseline}"
        if self.verdict == "undecided":
            return f"undecided: {forecast.title} saves {span} of {baseline}'s time"
        return f"does not pay: {baseline} is as fast or faster ({forecast.title} saves {span})"

    def by_name(self, method: str) -> Forecast:
        """A method's forecast."""
        return next(f for f in self.forecasts if f.method == method)


def plan(
    spec: RunSpec, methods: Sequence[Method], calibration: Calibration, trajectory: Trajectory, precision: str
) -> Plan:
    """Forecasts of all `methods`, of which `dense` must be one, for what `spec` trains and where.

    Raises `UserError` where the model does not fit, the calibration does not know a rate, or a method does not work
    with shards.
    """
    check_precision(calibration, precision)
    specs = {m.name: of_method(spec, m) for m in methods}
    for own in specs.values():
        check_memory(own, calibration, precision)
    models = {name: StepModel(own, calibration, precision) for name, own in specs.items()}
    runs = {name: simulate(model, trajectory) for name, model in models.items()}
    dense = [m.name for m in methods if m.baseline]
    baseline = min(dense, key=lambda name: runs[name].seconds)
    at = {name: Elsewhere(own, runs[name], calibration, precision) for name, own in specs.items()}
    others = [*_variations(calibration)]
    unhindered = models["dense"].elsewhere(at_rate(specs["dense"], HIGHEST_GBIT), calibration).floor
    varied = {name: [there.seconds(calibration=other) for other in others] for name, there in at.items()}
    forecasts = tuple(
        Forecast(
            method=m.name,
            title=m.title,
            iteration_s=runs[m.name].seconds / runs[m.name].iterations,
            floor_s=models[m.name].floor,
            settled=_parts(runs[m.name], models[m.name].sharding.kind != "none"),
            latency_s={kind: runs[m.name].mean(kind) for kind in runs[m.name].compressed.step.latencies},
            days=runs[m.name].seconds / 86400,
            amounts=runs[m.name].compressed.amounts,
            candidate=not m.baseline and (runs[m.name].compressed.compresses or m.synchronisation != EVERY_STEP),
            saving_percent=_saved(runs[m.name].seconds, runs[baseline].seconds),
            low_percent=min(_saved(*pair) for pair in zip(varied[m.name], varied[baseline], strict=True)),
            high_percent=max(_saved(*pair) for pair in zip(varied[m.name], varied[baseline], strict=True)),
            saving_fp32_percent=_saved(runs[m.name].seconds, runs["dense"].seconds),
            latency_reduction_percent={
                kind: _saved(runs[m.name].mean(kind), runs["dense"].mean(kind))
                for kind in runs[m.name].compressed.step.latencies
            },
            break_even_gbit=None if m.name in dense else break_even(at[m.name], at[baseline]),
            utilisation_percent=100 * unhindered * runs[m.name].iterations / runs[m.name].seconds,
            needs_gbit=needed_links(at[m.name], unhindered),
            highest_rank=highest_rank(models[m.name], runs[baseline].seconds / runs[baseline].iterations),
            notes=(*runs[m.name].notes, *_refusal(specs[m.name])),
        )
        for m in methods
    )
    return Plan(
        forecasts=forecasts,
        baseline=baseline,
        baseline_s=runs[baseline].seconds / runs[baseline].iterations,
        dense_s=runs["dense"].seconds / runs["dense"].iterations,
        bound_percent=_saved(models["dense"].floor, runs["dense"].seconds / runs["dense"].iterations),
        gpus=spec.cluster.processes,
    )


def _refusal(spec: RunSpec) -> tuple[str, ...]:
    """A note on what can be planned, and would be refused if it were to be trained."""
    try:
        validate(RunSpec, spec.model_dump(), spec.method.title)
    except UserError as error:
        why = " ".join(str(error).split())
        return (f"{why}. Nothing here trains that, so its time is a forecast of an implementation that does",)
    return ()


def _saved(seconds: float, baseline: float) -> float:
    return 100 * (1 - seconds / baseline) if baseline else 0.0


def _parts(run: WholeRun, sharded: bool) -> dict[str, float]:
    step = run.compressed.step
    names = ("compute", "bubble", "encode", "wire", "decode", "exposed", "embedding", "optimizer", "other_traffic")
    names += ("gather", "gather_exposed") if sharded else ()
    return {name: getattr(step, name) for name in names} | {"seconds": step.seconds}


def _variations(calibration: Calibration) -> Iterable[Calibration]:
    """The calibration with every combination of its sensitive rates a fifth higher or lower."""
    for factors in product((1 - DEVIATION, 1 + DEVIATION), repeat=len(SENSITIVE)):
        changed = {name: getattr(calibration, name) * factor for name, factor in zip(SENSITIVE, factors, strict=True)}
        stages = [
            timed.model_copy(
                update={k: tuple(s / factors[1] for s in getattr(timed, k)) for k in ("forward_s", "backward_s")}
            )
            for timed in calibration.stages
        ]
        yield calibration.model_copy(update=changed | {"stages": tuple(stages)})


class Elsewhere:
    """A run's time at other rates or on other links, with the decisions that it took.

    From its first and its last window's decisions alone, corrected by what that gives for the run as it was.
    """

    def __init__(self, spec: RunSpec, run: WholeRun, calibration: Calibration, precision: str) -> None:
        self._spec, self._run, self._calibration = spec, run, calibration
        self._model = StepModel(spec, calibration, precision)
        self._correction = 1.0
        self._correction = run.seconds / self.seconds()

    @property
    def iterations(self) -> int:
        """Steps of the run."""
        return self._run.iterations

    def seconds(self, calibration: Calibration | None = None, gbit: float | None = None) -> float:
        """The whole run's seconds."""
        spec = self._spec if gbit is None else at_rate(self._spec, gbit)
        model, windows = self._model.elsewhere(spec, calibration or self._calibration), self._run.windows
        compressed = sum(w.steps for w in windows if w.step.payload_bytes < windows[0].step.payload_bytes)
        settled = model.step(windows[-1].decisions).seconds
        if not compressed:
            return self._correction * self._run.iterations * settled
        before = (self._run.iterations - compressed) * model.step(windows[0].decisions).seconds
        return self._correction * (compressed * settled + before)


def break_even(one: Elsewhere, other: Elsewhere) -> float | None:
    """Link in Gbit/s on which both take as long; None: the first never wins.

    On slower links the first is faster. Infinity where it is faster on every link.
    """
    found = _slowest_without(lambda gbit: other.seconds(gbit=gbit) > one.seconds(gbit=gbit))
    return found or None


def needed_links(run: Elsewhere, unhindered: float) -> dict[int, float]:
    """Link in Gbit/s from which on so many percent of the run's mean step are what a step without exchange takes.

    `unhindered`: that step's seconds. Infinity where the exchange's own arithmetic, or the links' latency, leaves less
    on every link.
    """

    def too_slow(gbit: float, percent: int) -> bool:
        return 100 * unhindered < percent * run.seconds(gbit=gbit) / run.iterations

    return {percent: _slowest_without(partial(too_slow, percent=percent)) for percent in UTILISATIONS}


def _slowest_without(holds: Callable[[float], bool]) -> float:
    """The rate in Gbit/s below which something holds, to one percent: 0 where it never does, infinity if always."""
    low, high = LOWEST_GBIT, HIGHEST_GBIT
    if not holds(low):
        return 0.0
    if holds(high):
        return float("inf")
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low * high) ** 0.5


def highest_rank(model: StepModel, seconds: float) -> int | None:
    """Largest rank of all matrices with which a step takes less than `seconds`; None: there is none."""
    if model.spec.method.policy.decides is not Rank:  # type: ignore[attr-defined]
        return None

    def pays(rank: int) -> bool:
        return model.step([Decision(Rank(rank))] * len(model.stages)).seconds < seconds

    full = max((min(shape) for shapes in model.compressible for shape in shapes.values()), default=0)
    return bisect_left(range(1, full + 1), True, key=lambda rank: not pays(rank)) or None


def at_rate(spec: RunSpec, gbit: float) -> RunSpec:
    """The same run on nodes with links of another rate."""
    links = spec.cluster.links and spec.cluster.links.model_copy(update={"rate": None})
    return spec.model_copy(update={"cluster": spec.cluster.model_copy(update={"link_gbit": gbit, "links": links})})
