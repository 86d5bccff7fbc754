"""One training step on a cluster, for any decisions of a run's policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from math import prod
from typing import Any

from edgc.core.aggregators.workload import Workload, matmuls, memory_passes, orthonormalisations
from edgc.core.comm import Layout
from edgc.core.exchange.candidate_errors import errors_workload
from edgc.core.exchange.costs import compresses
from edgc.core.exchange.gradient_exchange import compressible
from edgc.core.exchange.link_codecs import LinkCodecSettings
from edgc.core.policies.amounts import Amount
from edgc.core.policies.by_kind import placed
from edgc.core.policies.policy import Decision
from edgc.core.settings.method import MECHANISMS
from edgc.core.synchronisation.synchronisation import Moment
from edgc.suite.cluster import pipeline_schedule as schedule
from edgc.suite.cluster.compute import ITEMSIZE, StageSeconds, head_share, seconds, speeds, stages
from edgc.suite.cluster.device_and_link import GATHER, Timeline, arrivals, exchange, exchange_beside
from edgc.suite.cluster.parameters import Shape, count, fill, stage_parameters, units, vocabulary
from edgc.suite.cluster.sharding import Sharding, micro_batch, reducing, run_modules
from edgc.suite.cluster.step_outcome import Step
from edgc.suite.cluster.transfers import Transfers
from edgc.suite.config import Calibration, RunSpec
from edgc.suite.config.model import TIED

BUCKET_PARAMETERS = (40_000_000, 1_000_000)  #: megatron's default: the larger of this, and of that a data-parallel rank


class StepModel:
    """Steps of one run, for any decisions of its policy.

    Raises `UserError` where the calibration has no rate of the run's precision, or the cluster none of its links.
    """

    def __init__(self, spec: RunSpec, calibration: Calibration, precision: str | None = None) -> None:
        """`precision`: of compute, where it is not the run's own."""
        self.spec, self.calibration = spec, calibration
        self.precision = precision or spec.training.precision
        self.transfers = Transfers(spec.cluster, spec.parallel, calibration)
        self.stages: list[StageSeconds] = stages(spec, calibration, self.transfers, self.precision)
        settings = spec.method.aggregator
        self._aggregator = MECHANISMS[settings.name](settings)  # type: ignore[attr-defined]
        p = spec.parallel
        rows = vocabulary(spec)
        self.shapes = [stage_parameters(spec.model, rows, p.tensor, p.pipeline, stage) for stage in range(p.pipeline)]
        self.sharding = Sharding(spec, self.precision)
        self._workloads: dict[tuple[Any, ...], list[tuple[int, Workload]]] = {}  # depend on no rate
        self._layouts: dict[tuple[str, ...], Layout] = {}  # by the parameters of a bucket
        self.compressible = [self._compressible(stage) for stage in range(p.pipeline)]  #: what the method may compress
        #: what the data-parallel ranks of a stage exchange
        self._exchanged = [{n: s for n, s in shapes.items() if n not in self._fused} for shapes in self.shapes]
        self._parts = [len(spec.method.synchronisation.parts(shapes)) for shapes in self._exchanged]

    def compresses(self, stage: int, decision: Decision) -> bool:
        """Whether a decision compresses anything on a stage."""
        return compresses(self._aggregator, self.compressible[stage], decision)

    def elsewhere(self, spec: RunSpec, calibration: Calibration) -> StepModel:
        """The same run with other rates, or on a cluster whose links have another one."""
        other = copy(self)
        for name in ("floor", "_pipeline", "_last_gather"):
            other.__dict__.pop(name, None)
        other.spec, other.calibration = spec, calibration
        other.transfers = Transfers(spec.cluster, spec.parallel, calibration)
        other.stages = stages(spec, calibration, other.transfers, self.precision)
        return other

    def _compressible(self, stage: int) -> dict[str, Shape]:
        placement = self.spec.method.placement
        if placement.stages is not None and stage not in placement.stages:
            return {}
        return compressible(self.shapes[stage], self._aggregator.amount, (*placement.exclude, *self._fused))

    def step(
        self, decisions: Sequence[Decision] = (), sampled: float = 0.0, looks: Sequence[float] | None = None
    ) -> Step:
        """A step with these decisions by stage (none: everything travels dense): the mean of an exchange's period.

        `sampled`: share of the compressible elements that the policy's observations read in an exchange, on average.
        `looks`: seconds by stage that looking at its candidates takes in an exchange, on average.
        """
        decided = decisions or [Decision()] * len(self.stages)
        looks = looks or [0.0] * len(self.stages)
        exchanges = enumerate(zip(decided, looks, strict=True))
        return self._put_together(
            [self._exchange(stage, decision, sampled, look) for stage, (decision, look) in exchanges]
        )

    def _exchange(self, stage: int, decision: Decision, sampled: float, look: float) -> Timeline:
        """A stage's exchange at its place in the step."""
        synchronisation, (tasks, ends) = self.spec.method.synchronisation, self._pipeline
        if self.sharding.kind == "full":
            return self._layer_by_layer(decision, sampled, look)
        after_all = synchronisation.moment is Moment.OPTIMIZER
        timeline = self._timeline(stage, self.floor if after_all else ends[stage])
        buckets = self._buckets(stage, decision)
        if self.spec.method.overlap:
            timeline.now -= sum(backward for backward, _ in buckets)
        self._prepare(timeline, stage, sampled, look)
        if synchronisation.moment is Moment.NEXT_STEP:
            forward = max(task.end for task in tasks if task.stage == stage and task.kind == "forward")
            steps, odd = divmod(synchronisation.in_flight, 2)
            middle = steps * self.floor + odd * (self.floor - ends[stage] + forward)
            whole = synchronisation.in_flight * self.floor
            exchange_beside(timeline, [workload for _, workload in buckets], middle, whole - middle)
        elif after_all:  # parts of different steps of a period, in turn, as if all were at one step's end
            beside = synchronisation.late * self.floor  # later messages leave in the middle of that
            for _, workload in buckets:
                exchange_beside(timeline, [workload], beside / 2, beside / 2)
        else:
            exchange(timeline, buckets)
        return timeline

    def _prepare(self, timeline: Timeline, stage: int, sampled: float, look: float) -> None:
        """What a stage's device does before its first bucket is encoded."""
        if sampled:
            elements = sum(prod(shape) for shape in self.compressible[stage].values())
            timeline.compute("encode", timeline.kernels([memory_passes(sampled * elements, 1)]))
        if look:
            timeline.compute("encode", look)
        if self.spec.parallel.data > 1:
            synchronisation = self.spec.method.synchronisation
            timeline.compute("encode", timeline.kernels(synchronisation.kernels(count(self._exchanged[stage]))))

    def _layer_by_layer(self, decision: Decision | None, sampled: float = 0.0, look: float = 0.0) -> Timeline:
        """A whole step where all is sharded; without a decision nothing is reduced."""
        streams, timeline = self.spec.cluster.device == "cuda", self._timeline(0, 0.0)
        *layers, root = units(self.shapes[0])
        in_layers, in_head = (1 - head_share(self.spec)) / len(layers), head_share(self.spec)
        times = self.stages[0].forward, self.stages[0].backward
        forward, backward = micro_batch(
            [in_layers * time for time in times],
            [in_head * time for time in times],
            self.sharding.gather(layers[0]),
            self.sharding.gather(root),
            len(layers),
        )
        for _ in range(self.spec.micro_batches - 1):
            run_modules(timeline, [*forward, *backward], streams)
        run_modules(timeline, forward, streams)
        if decision is not None:
            self._prepare(timeline, 0, sampled, look)
            backward = reducing(backward, [workload for _, workload in self._buckets(0, decision)])
        run_modules(timeline, backward, streams)
        return timeline

    @cached_property
    def floor(self) -> float:
        """Seconds of a step without any exchange of gradients among data-parallel ranks."""
        _, ends = self._pipeline
        return max(ends) + self._embedding + self._optimizer + self._last_gather

    @cached_property
    def _last_gather(self) -> float:
        """Seconds in which ranks gather what others have updated, after the optimizer; the slowest stage's."""
        if self.sharding.kind != "optimizer":
            return 0.0
        timelines = [self._timeline(stage, 0.0) for stage in range(len(self.stages))]
        for timeline, shapes in zip(timelines, self.shapes, strict=True):
            for bucket in self._cut(shapes):
                for arrival in arrivals(timeline, self.sharding.gather(bucket), GATHER):
                    timeline.wait(arrival)
        return max(timeline.now for timeline in timelines)

    def exchange_seconds(self, stage: int, decision: Decision) -> float:
        """One stage's exchange by itself, encode to decode: what EDGC's calibration measures before training."""
        return self._alone(stage, self.workload(stage, decision))

    def look_seconds(self, stage: int, amounts: Sequence[Amount]) -> float:
        """One look at what each of `amounts` would lose of a stage's tensors."""
        return self._alone(stage, errors_workload(self._aggregator, self.compressible[stage], amounts))

    def _alone(self, stage: int, workload: Workload) -> float:
        timeline = self._timeline(stage, 0.0)
        exchange(timeline, [(0.0, workload)])
        return timeline.now

    def workload(self, stage: int, decision: Decision) -> Workload:
        """What a stage's exchange asks of its device and link, in one bucket."""
        return self._workload(self._exchanged[stage], stage, decision)

    def _timeline(self, stage: int, now: float) -> Timeline:
        """A device and its link, idle until `now`."""
        speed, transfers = speeds(self.calibration, len(self.stages))[stage], self.transfers
        group = transfers.group("data", stage)
        return Timeline(
            lambda kernels: seconds(kernels, self.calibration) / speed,
            lambda m: transfers.collective(m.collective, m.payload, group, m.pair),
            transfers.in_flight,
            now,
        )

    @cached_property
    def _pipeline(self) -> tuple[tuple[schedule.ScheduledTask, ...], tuple[float, ...]]:
        """All tasks (none where layers are simulated), and when each stage's backward ends, without the exchange."""
        if self.sharding.kind == "full":
            return (), (self._layer_by_layer(None).now,)
        hops = self._hops
        forward, backward = [s.forward for s in self.stages], [s.backward for s in self.stages]
        tasks = schedule.run(forward, backward, self.spec.micro_batches, *hops, self.calibration.sender_waits)
        ends = [max(task.end for task in tasks if task.stage == stage) for stage in range(len(self.stages))]
        return tuple(tasks), tuple(ends)

    @property
    def _hops(self) -> tuple[float, float]:
        """Seconds to the next stage, and to the one before."""
        traffic = self.spec.method.pipeline
        return self._hop(traffic.forward), self._hop(traffic.backward)

    def _hop(self, codec: LinkCodecSettings) -> float:
        """Seconds from a stage's output to the next one's input, or from a gradient to the stage before: the slowest.

        A low-rank message is two products and an orthonormalisation to make, and a product to read.
        """
        rows, columns = self.spec.training.micro_batch * self.spec.model.seq_length, self.spec.model.hidden_size
        size = codec.message_bytes(rows, columns, ITEMSIZE[self.precision])
        slowest = max((self.transfers.hop(size, stage) for stage in range(len(self.stages) - 1)), default=0.0)
        if codec.rank is None or not slowest:
            return slowest
        product, thin = matmuls([(rows, columns, codec.rank)]), orthonormalisations([(rows, codec.rank)])
        return slowest + seconds([product, thin, product, product], self.calibration)

    @property
    def _fused(self) -> tuple[str, ...]:
        """What is exchanged between stages too, and by itself: with one stage nothing."""
        return TIED if self.spec.method.fused_embedding and self.spec.parallel.pipeline > 1 else ()

    @property
    def _embedding(self) -> float:
        p = self.spec.parallel
        if p.pipeline == 1:
            return 0.0
        group = self.transfers.group("fused" if self.spec.method.fused_embedding else "ends")
        return self.transfers.collective("all_reduce", 4 * prod(self.shapes[0][TIED[0]]), group).seconds

    def _buckets(self, stage: int, decision: Decision) -> list[tuple[float, Workload]]:
        """A stage's buckets in the order of backward, each with the backward that precedes it."""
        key = (stage, decision.default, *decision.by_parameter.items())
        if key not in self._workloads:
            cut = self._cut(self._exchanged[stage])
            self._workloads[key] = [(count(bucket), self._workload(bucket, stage, decision)) for bucket in cut]
        buckets = self._workloads[key]
        overlapped = self.stages[stage].backward if self.spec.method.overlap else 0.0
        each = overlapped / sum(parameters for parameters, _ in buckets)
        return [(each * parameters, workload) for parameters, workload in buckets]

    def _cut(self, shapes: dict[str, Shape]) -> list[dict[str, Shape]]:
        """What is exchanged together: all, or where it overlaps, megatron's buckets; with full shards, each module."""
        if self.sharding.kind == "full":
            return units(shapes)
        if not self.spec.method.overlap:
            return [{name: shapes[name] for name in part} for part in self.spec.method.synchronisation.parts(shapes)]
        size = max(BUCKET_PARAMETERS[0], BUCKET_PARAMETERS[1] * self.spec.parallel.data)
        return fill(shapes, self.spec.training.bucket_parameters or size)

    def _workload(self, shapes: Mapping[str, Shape], stage: int, decision: Decision) -> Workload:
        ranks = self.spec.parallel.data
        if ranks == 1:
            return Workload()
        may = self.compressible[stage]
        key = tuple(shapes)
        if key not in self._layouts:
            self._layouts[key] = self.sharding.layout(shapes)
        self._aggregator.layout = self._layouts[key]
        decided = placed(decision, [name for name in shapes if name in may], self.spec.method.placement.scale)
        return self.spec.method.synchronisation.workload(
            lambda size: self._aggregator.workload(shapes, decided, size), ranks
        )

    def _ends_with(self, stage: int, timeline: Timeline) -> float:
        """When a step ends that has this exchange on this stage, if no other stage makes it longer."""
        moment = self.spec.method.synchronisation.moment
        if moment is Moment.NEXT_STEP:
            return self._beside(stage, timeline)
        after = self._optimizer + self._last_gather if moment is Moment.BACKWARD else 0.0
        return timeline.now + self._embedding + after - self._local_steps(stage)

    def _local_steps(self, stage: int) -> float:
        """Seconds of the steps beside which late exchanges are under way: they are steps of their own."""
        return self.spec.method.synchronisation.late * self.floor * self._parts[stage]

    def _beside(self, stage: int, timeline: Timeline) -> float:
        """Seconds from the end of one backward to that of the next, with an exchange that takes several of them.

        Each step's device makes one, each step's link carries one, and all of them share what they are late.
        """
        in_flight = self.spec.method.synchronisation.in_flight
        passed, computed = timeline.now - self._pipeline[1][stage], timeline.total("encode") + timeline.total("decode")
        late = (passed - computed) / in_flight - self.floor
        return self.floor + computed + max(late, timeline.link - self.floor - computed, 0.0)

    @property
    def _optimizer(self) -> float:
        return max(stage.optimizer for stage in self.stages)

    def _put_together(self, timelines: Sequence[Timeline]) -> Step:
        tasks, ends = self._pipeline
        synchronisation = self.spec.method.synchronisation
        last = max(range(len(timelines)), key=lambda stage: self._ends_with(stage, timelines[stage]))
        own, timeline, period = self.stages[last], timelines[last], synchronisation.period
        total = self._ends_with(last, timeline)
        if period > 1:
            total = self.floor + (total - self.floor) / period
        compute = self.spec.micro_batches * (own.forward + own.backward)
        to_next, to_last = self._hops
        exposed_gathers = ends[last] - compute if self.sharding.kind == "full" else self._last_gather
        to_neighbours = to_next * (last < len(timelines) - 1) + to_last * (last > 0)
        return Step(
            seconds=total,
            compute=compute,
            bubble=0.0 if self.sharding.kind == "full" else round(max(0.0, ends[last] - compute), 12),  # to picoseconds
            encode=timeline.total("encode") / period,
            wire=timeline.total("wire") / period,
            decode=timeline.total("decode") / period,
            exposed=total - self.floor,
            embedding=self._embedding,
            optimizer=self._optimizer,
            other_traffic=self.spec.micro_batches * (own.tensor_traffic + to_neighbours),
            gather=timeline.total("gather") + self._last_gather,
            gather_exposed=exposed_gathers,
            payload_bytes=timeline.payload / period,
            stage=last,
            summed=timeline.now if synchronisation.moment is Moment.BACKWARD else max(ends),
            ends=ends,
            tasks=tasks,
            spans=tuple(tuple(t.spans) for t in timelines),
        )
