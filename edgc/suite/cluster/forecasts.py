"""Does compressing gradients pay on this cluster? What each method takes, what limits it, and how sure that is."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.core.policies.amounts import Rank
from edgc.core.policies.policy import Decision
from edgc.core.settings.method import EVERY_STEP
from edgc.suite.cluster.compute import check_precision
from edgc.suite.cluster.memory import check_memory
from edgc.suite.cluster.question import Scenario, at_rate, of_method
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.whole_run import WholeRun
from edgc.suite.config import Calibration, Method, RunSpec

SENSITIVE = ("link_efficiency", "gemm_efficiency", "thin_tflops")  #: what the saving depends on most
DEVIATION = 0.2  #: of each of them, up and down
CLEAR = 0.5  #: points of saving that count as none
HIGHEST_GBIT, LOWEST_GBIT = 1e5, 1e-4
UTILISATIONS = (50, 80, 95)  #: percent of a step that is not spent on the exchange of gradients


@dataclass(frozen=True)
class Forecast:
    """One method in a scenario."""

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

    @property
    def verdict(self) -> str:
        """pays, does not pay, or undecided."""
        if self.high_percent < CLEAR:
            return "does not pay"
        return "pays" if self.low_percent >= CLEAR else "undecided"


@dataclass(frozen=True)
class Forecasts:
    """All methods in a scenario, in the order asked for, and the verdict."""

    scenario: Scenario
    methods: tuple[Forecast, ...]
    baseline: Forecast  #: the fastest method that compresses nothing
    dense: Forecast  #: in fp32
    runs: dict[str, WholeRun] = field(repr=False)  #: by method
    left_out: tuple[str, ...] = ()  #: methods that cannot run there, and why

    @property
    def bound_percent(self) -> float:
        """What no exchange of gradients at all would save against dense in fp32."""
        return _saved(self.dense.floor_s, self.dense.iteration_s)

    @property
    def gpus(self) -> int:
        """Devices of the cluster."""
        return self.scenario.spec.cluster.processes

    @property
    def candidate(self) -> Forecast | None:
        """The fastest of the methods that compress."""
        return min((f for f in self.methods if f.candidate), key=lambda f: f.iteration_s, default=None)

    @property
    def verdict(self) -> str:
        """That of the fastest method that compresses."""
        return self.candidate.verdict if self.candidate else "does not pay"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        forecast, baseline = self.candidate, self.baseline.title
        if forecast is None:
            return "does not pay: no method that was asked for compresses anything on these links"
        span = f"{forecast.low_percent:z.1f} to {forecast.high_percent:z.1f} %".replace("-", "−")
        if self.verdict == "pays":
            return f"pays: {forecast.title} takes {span} less time than {baseline}"
        if self.verdict == "undecided":
            return f"undecided: {forecast.title} saves {span} of {baseline}'s time"
        return f"does not pay: {baseline} is as fast or faster ({forecast.title} saves {span})"

    def by_name(self, method: str) -> Forecast:
        """A method's forecast."""
        return next(f for f in self.methods if f.method == method)

    def drawn(self) -> list[dict[str, Any]]:
        """What every stage does in a step of each method once its policy has settled: its title, and `Step.drawn`."""
        settled = {each.title: self.runs[each.method].compressed.step for each in self.methods}
        return [{"title": title} | row for title, step in settled.items() for row in step.drawn()]


def forecast(scenario: Scenario, methods: Sequence[Method], usual: bool = False) -> Forecasts:
    """Forecasts of all `methods`, of which `dense` must be one.

    `usual`: nobody asked for these in particular, so that one that cannot run there takes no answer from the others.

    Raises `UserError` where the model does not fit, the calibration does not know a rate, or a method does not work
    with shards, or in so few steps.
    """
    check_precision(scenario.calibration, scenario.precision)
    runs: dict[str, MethodRun] = {}
    left_out = []
    for method in methods:
        try:
            runs[method.name] = MethodRun(scenario, method)
        except UserError as error:
            if method.name == "dense":
                raise
            why = str(error).removeprefix(f"method {method.name}:").strip()
            if not usual:
                raise UserError(f"method {method.name}: {why}") from None
            left_out.append(f"{method.title}: {' '.join(why.split())}")
    dense = runs["dense"]
    baseline = min((each for each in runs.values() if each.method.baseline), key=lambda each: each.run.seconds)
    found = {name: each.against(baseline, dense) for name, each in runs.items()}
    whole = {name: each.run for name, each in runs.items()}
    answered = tuple(found.values()), found[baseline.method.name], found["dense"], whole
    return Forecasts(scenario, *answered, tuple(left_out))


class MethodRun:
    """A method's run in a scenario, and its time at other rates or on other links, with the decisions that it took.

    The latter from its first and its last window's decisions alone, corrected by what that gives for the run as it was.
    """

    def __init__(self, scenario: Scenario, method: Method) -> None:
        self.method, self._calibration = method, scenario.calibration
        spec = of_method(scenario.spec, method)
        check_memory(spec, scenario.calibration, scenario.precision)
        self.model = StepModel(spec, scenario.calibration, scenario.precision)
        self.run = WholeRun.of(self.model, scenario.trajectory)
        self._correction = 1.0
        self._correction = self.run.seconds / self.seconds()
        self._varied = [self.seconds(other) for other in _variations(scenario.calibration)]

    def seconds(self, calibration: Calibration | None = None, gbit: float | None = None) -> float:
        """The whole run's seconds."""
        spec = self.model.spec if gbit is None else at_rate(self.model.spec, gbit)
        model, windows = self.model.elsewhere(spec, calibration or self._calibration), self.run.windows
        compressed = sum(w.steps for w in windows if w.step.payload_bytes < windows[0].step.payload_bytes)
        settled = model.step(windows[-1].decisions).seconds
        if not compressed:
            return self._correction * self.run.iterations * settled
        before = (self.run.iterations - compressed) * model.step(windows[0].decisions).seconds
        return self._correction * (compressed * settled + before)

    def against(self, baseline: MethodRun, dense: MethodRun) -> Forecast:
        """Its forecast, beside the fastest dense method's run, dense fp32's, and a step without exchange.

        The latter is dense's, but with the method's own optimizer.
        """
        run, latencies = self.run, self.run.latencies
        same = self.method.optimizer in (None, dense.model.spec.training.optimizer)
        alone = (dense if same else self).model
        without = alone.elsewhere(at_rate(alone.spec, HIGHEST_GBIT), self._calibration).floor
        varied = [_saved(*pair) for pair in zip(self._varied, baseline._varied, strict=True)]
        return Forecast(
            method=self.method.name,
            title=self.method.title,
            iteration_s=run.iteration_s,
            floor_s=self.model.floor,
            settled=run.compressed.step.parts(self.model.sharding.kind != "none"),
            latency_s=latencies,
            days=run.seconds / 86400,
            amounts=run.compressed.amounts,
            candidate=not self.method.baseline
            and (run.compressed.compresses or self.method.synchronisation != EVERY_STEP),
            saving_percent=_saved(run.seconds, baseline.run.seconds),
            low_percent=min(varied),
            high_percent=max(varied),
            saving_fp32_percent=_saved(run.seconds, dense.run.seconds),
            latency_reduction_percent={kind: _saved(s, dense.run.latencies[kind]) for kind, s in latencies.items()},
            break_even_gbit=None if self.method.baseline else self._break_even(baseline),
            utilisation_percent=100 * without * run.iterations / run.seconds,
            needs_gbit={percent: self._needs(percent, without) for percent in UTILISATIONS},
            highest_rank=self._highest_rank(baseline.run.iteration_s),
            notes=(*run.notes, *_refusal(self.model.spec)),
        )

    def _break_even(self, other: MethodRun) -> float | None:
        """Link in Gbit/s below which this is faster, to one percent: infinity on all; None: this never wins."""
        return _slowest_without(lambda gbit: other.seconds(gbit=gbit) > self.seconds(gbit=gbit)) or None

    def _needs(self, percent: int, without: float) -> float:
        """Link in Gbit/s from which on so many percent of a mean step are what one `without` exchange takes.

        Infinity where the exchange's own arithmetic, or the links' latency, leaves less on every link.
        """
        return _slowest_without(lambda gbit: 100 * without < percent * self.seconds(gbit=gbit) / self.run.iterations)

    def _highest_rank(self, seconds: float) -> int | None:
        """Largest rank of all matrices with which a step takes less than `seconds`; None: there is none."""
        if self.method.policy.decides is not Rank:  # type: ignore[attr-defined]
            return None

        def pays(rank: int) -> bool:
            return self.model.step([Decision(Rank(rank))] * len(self.model.stages)).seconds < seconds

        full = max((min(shape) for shapes in self.model.compressible for shape in shapes.values()), default=0)
        return bisect_left(range(1, full + 1), True, key=lambda rank: not pays(rank)) or None


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
