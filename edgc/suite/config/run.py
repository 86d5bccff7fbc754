"""Everything one training run depends on, and its name."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from edgc.core.aggregators.controls import TorchPowerSGDSettings
from edgc.core.aggregators.lowrank import LowRankSettings
from edgc.core.base.files import canonical_json
from edgc.core.base.settings import Settings
from edgc.core.settings.method import EVERY_STEP, Method
from edgc.suite.config.cluster import Cluster, Parallel
from edgc.suite.config.corpus import Corpus
from edgc.suite.config.model import Model
from edgc.suite.config.training import Training

Loop = Literal["megatron", "ddp", "stacked"]
#: What trains, in a run and in an experiment.
LOOP: Any = Field(
    "megatron",
    description="megatron: megatron-core's model and schedule; ddp: a plain GPT-2 in a plain loop under PyTorch's "
    "DistributedDataParallel, or under FSDP2 if training.shard is full; stacked: all data-parallel replicas in one "
    "process, for losses and bytes, not for times",
)


class RunSpec(Settings):
    """Everything one training run depends on."""

    model: Model
    method: Method
    corpus: Corpus
    cluster: Cluster
    parallel: Parallel
    training: Training
    seed: int = Field(ge=0, description="Seed of initialisation, data order and methods")
    loop: Loop = LOOP

    def refusals(self) -> Iterator[str]:
        p, t = self.parallel, self.training
        if self.loop != "stacked" and p.processes != self.cluster.processes:
            yield (
                f"parallel: tensor {p.tensor} × pipeline {p.pipeline} × data {p.data} = {p.processes} processes, "
                f"but cluster {self.cluster.name} has {self.cluster.nodes} × {self.cluster.processes_per_node} "
                f"= {self.cluster.processes}"
            )
        if self.model.num_layers % p.pipeline:
            yield f"parallel.pipeline {p.pipeline} must divide model.num_layers {self.model.num_layers}"
        if self.model.num_heads % p.tensor:
            yield f"parallel.tensor {p.tensor} must divide model.num_heads {self.model.num_heads}"
        if t.global_batch % (t.micro_batch * p.data):
            yield (
                f"training.global_batch {t.global_batch} must be a multiple of "
                f"micro_batch {t.micro_batch} × parallel.data {p.data}"
            )
        if self.model.experts and self.loop != "stacked":
            yield (
                f"model.experts {self.model.experts}: loop {self.loop} has no mixture of experts; use loop: stacked, "
                "or a model without experts"
            )
        if p.pipeline > 1 and self.cluster.processes_per_gpu > 1:
            yield (
                f"parallel.pipeline {p.pipeline}: processes that share a GPU exchange over gloo, which sends "
                "no activations from a GPU to the next stage, but cluster.processes_per_gpu is "
                f"{self.cluster.processes_per_gpu}; use parallel.pipeline 1"
            )
        stages = self.method.placement.stages
        if stages is not None and max(stages, default=0) >= p.pipeline:
            yield (f"method.placement.stages {stages}: parallel.pipeline {p.pipeline} has 0 to {p.pipeline - 1}")
        if self.model.num_layers < (least := self.method.synchronisation.least_layers):  # type: ignore[attr-defined]
            yield (
                f"method.synchronisation: method {self.method.name} exchanges {least} parts of a model's layers in "
                f"turn, but model {self.model.name} has {self.model.num_layers} (model.num_layers); use at most as "
                "many fragments"
            )
        yield from self._pipeline_refused()
        yield from self._loop_refused()
        yield from self._stacked_refused()
        yield from self._shards_refused()
        yield from self._optimizer_refused()
        yield from self._replicas_refused()

    def cannot_launch(self) -> str | None:
        """Why the plain loop cannot train it, and what to do; None: it can. The cluster model tells its time anyway."""
        t, method, device = self.training, self.method, self.cluster.device
        overlaps = method.overlap and t.shard == "full"
        exclude = method.placement.exclude
        for setting, wrong, why, instead in (
            ("training.precision", t.precision != "fp32", f"{t.precision}: it computes in fp32", "fp32"),
            ("training.recompute", t.recompute, "true: it keeps activations", "false"),
            ("method.overlap", overlaps, "true: under FSDP2 a layer's exchange ends before backward goes on", "false"),
            ("method.placement.exclude", exclude, f"{list(exclude)}: its model's names are not megatron's", "[]"),
            ("cluster.device", device != "cpu", f"{device} ({self.cluster.name}): it is for CPUs so far", "cpu"),
        ):
            if self.loop == "ddp" and wrong:
                return f"loop ddp, method {method.name}: {setting} {why}; set it to {instead}, or use loop: megatron"
        return None

    def _replicas_refused(self) -> Iterator[str]:
        """What ranks would do apart that hold the same parameters, or the ends of a pipeline."""
        p, method = self.parallel, self.method
        if self.training.probe.looks and method.synchronisation != EVERY_STEP:
            yield (
                f"training.probe: looks at the gradients of every step, but method {method.name} has synchronisation "
                f"{method.synchronisation.name}; use every_step, or leave the probe out"
            )
        if method.synchronisation.paced and p.tensor * p.pipeline > 1:
            yield (
                f"method.synchronisation {method.synchronisation.name}: each data-parallel group would choose its own "
                f"steps to exchange after, but parallel has tensor {p.tensor} and pipeline {p.pipeline}; use 1 for both"
            )
        if method.aggregator.mixes_tensors and p.tensor > 1:
            yield (
                f"method.aggregator {method.aggregator.name}: what tensor-parallel ranks both hold would get another "
                f"average on each, as it is joined with their own parts, but parallel.tensor is {p.tensor}; use 1"
            )

    def _pipeline_refused(self) -> Iterator[str]:
        method, t = self.method, self.training
        for setting, on in (("pipeline", method.pipeline.compresses), ("fused_embedding", method.fused_embedding)):
            if on and self.parallel.pipeline < 2:
                yield (
                    f"method.{setting} is for several pipeline stages, but parallel.pipeline is "
                    f"{self.parallel.pipeline}; use at least 2, or leave method.{setting} out"
                )
        for direction in ("forward", "backward"):
            try:
                codec = getattr(method.pipeline, direction)
                codec.check_shape(t.micro_batch * self.model.seq_length, self.model.hidden_size)
            except ValueError as error:
                yield f"method.pipeline.{direction}: {error}"

    def _loop_refused(self) -> Iterator[str]:
        p, hook = self.parallel, isinstance(self.method.aggregator, TorchPowerSGDSettings)
        if self.loop == "ddp" and (p.tensor > 1 or p.pipeline > 1):
            yield (
                f"loop ddp is data-parallel only: parallel.tensor {p.tensor} and .pipeline {p.pipeline}; use 1 for both"
            )
        if hook and (self.loop != "ddp" or self.training.shard != "none"):
            yield (
                f"method {self.method.name} is a hook of PyTorch's DDP: it needs loop: ddp and training.shard: none, "
                f"but has loop: {self.loop} and shard: {self.training.shard}"
            )
        if self.loop == "ddp" and (why := self.method.synchronisation.no_hook):  # type: ignore[attr-defined]
            yield (
                f"loop ddp: method {self.method.name} has synchronisation {self.method.synchronisation.name}, which "  # type: ignore[attr-defined]
                f"{why}: it cannot be a hook; use a method with synchronisation every_step, or loop: megatron"
            )
        if self.loop == "ddp" and self.method.policy.reads_seconds:  # type: ignore[attr-defined]
            yield (
                f"loop ddp: policy {self.method.policy.name} reads how long a step takes, which a hook does not learn; "  # type: ignore[attr-defined]
                "use another policy, or loop: megatron"
            )
        if self.loop == "ddp" and self.training.probe.looks:
            yield "training.probe: loop ddp has none; leave it out, or use loop: megatron"

    def _stacked_refused(self) -> Iterator[str]:
        if self.loop != "stacked":
            return
        p, policy = self.parallel, self.method.policy
        for setting, value, allowed in (
            ("parallel.tensor", p.tensor, 1),
            ("parallel.pipeline", p.pipeline, 1),
            ("training.recompute", self.training.recompute, False),
            ("method.overlap", self.method.overlap, False),
        ):
            if value != allowed:
                yield (
                    f"loop stacked has all replicas in one process, but {setting} is {str(value).lower()}; use "
                    f"{setting}: {str(allowed).lower()}, or loop: megatron"
                )
        if self.cluster.processes > 1 or self.cluster.links is not None:
            yield (
                f"loop stacked is one process that sends nothing, but cluster {self.cluster.name} has "
                f"{self.cluster.processes} processes{' and links' if self.cluster.links is not None else ''}; use a "
                "cluster of one process without links (one-core), or loop: megatron"
            )
        if policy.reads_seconds or policy.needs_costs or self.method.synchronisation.paced:  # type: ignore[attr-defined]
            yield (
                f"loop stacked: method {self.method.name} decides by how long exchanges take, and here nothing is "
                "sent; give its policy a max_rank and alignment: false if it has these, or use another method or loop: "
                "megatron"
            )

    def _shards_refused(self) -> Iterator[str]:
        t, method = self.training, self.method
        if t.shard == "none":
            if t.parameter_wire != "exact":
                yield (
                    f"training.parameter_wire {t.parameter_wire}: parameters travel only where they are sharded; set "
                    "training.shard: optimizer, or leave it out"
                )
            return
        if (needed := {"optimizer": "megatron", "full": "ddp"}[t.shard]) != self.loop:
            yield f"training.shard {t.shard}: loop {self.loop} does not shard like this; use loop: {needed}"
        if t.shard == "full" and self.parallel.data < 2:
            yield "training.shard full: there is nothing to shard over; use parallel.data of at least 2"
        if method.synchronisation != EVERY_STEP:
            yield (
                f"training.shard {t.shard}: method {method.name} has synchronisation {method.synchronisation.name}, "
                "which changes whole parameters or averages, and a rank updates a part of them only; use every_step"
            )
        if t.probe.looks:
            yield (
                f"training.shard {t.shard}: training.probe looks at whole averages, and a rank has a part of them only"
            )

    def _optimizer_refused(self) -> Iterator[str]:
        optimizer, method, tensor = self.training.optimizer, self.method, self.parallel.tensor
        synchronisation = f"method {method.name}: synchronisation {method.synchronisation.name}"
        if method.optimizer not in (None, optimizer):
            yield (
                f"training.optimizer {optimizer}: method {method.name} is made for {method.optimizer}; use "
                f"training.optimizer: {method.optimizer}, or a method of another name without `optimizer`"
            )
        if optimizer == "muon":
            for setting, value, wrong, allowed in (
                ("loop", self.loop, self.loop == "ddp", "megatron"),
                ("parallel.tensor", tensor, tensor > 1, "1"),
                ("training.shard", self.training.shard, self.training.shard != "none", "none"),
            ):
                if wrong:
                    yield (
                        f"training.optimizer muon: needs whole matrices under megatron, but {setting} is {value}; use "
                        f"{setting}: {allowed}, or optimizer: adamw"
                    )
            if method.synchronisation.reads_adam:
                yield (
                    f"training.optimizer muon: {synchronisation} reads AdamW's moments of all parameters; use another "
                    "correction, or optimizer: adamw"
                )
            elif method.synchronisation.updates:
                yield (
                    f"training.optimizer muon: {synchronisation} updates parameters itself, and the others by AdamW; "
                    "use optimizer: adamw"
                )
        if method.synchronisation.whole_matrices and tensor > 1:
            yield f"{synchronisation} needs whole matrices, but parallel.tensor is {tensor}; use 1"

    @property
    def processes(self) -> int:
        """How many the run starts."""
        return 1 if self.loop == "stacked" else self.parallel.processes

    @property
    def micro_batches(self) -> int:
        """Micro-batches a data-parallel rank runs in a step."""
        return self.training.global_batch // (self.training.micro_batch * self.parallel.data)

    def padded_vocabulary(self, tokens: int) -> int:
        """Rows of the word embedding: `tokens`, padded so that tensor-parallel ranks hold equal shares.

        The least common multiple, not megatron's product: padding takes part in the softmax, so that the loss would
        depend on the tensor degree.
        """
        multiple = math.lcm(self.model.vocab_multiple, self.parallel.tensor)
        return math.ceil(tokens / multiple) * multiple

    def identity(self) -> dict[str, Any]:
        """What the result depends on, as plain values: without descriptions, the batch system's settings, and what has
        no effect: the options of a probe that looks at nothing, a choice of kernels that follows from the device.

        Defaults of settings that are younger than published runs are left out, here or by `younger`:
        finished runs are found by their id."""
        exclude: dict[str, Any] = {
            "method": dict.fromkeys(("title", "source", "summary"), True),
            "cluster": dict.fromkeys(("schedule", "port", "bind_to_cores"), True) | {"links": {"trace": {"title"}}},
        }
        aggregator = self.method.aggregator
        if isinstance(aggregator, LowRankSettings) and aggregator.wire_dtype == "fp32":
            exclude["method"]["aggregator"] = {"wire_dtype"}
        if self.method.synchronisation == EVERY_STEP:
            exclude["method"]["synchronisation"] = True
        if self.loop == "megatron":
            exclude["loop"] = True
        if not self.training.probe.looks:
            exclude["training"] = {"probe"}
        return self.model_dump(mode="json", exclude=exclude)

    @property
    def spec_id(self) -> str:
        """Eight hexadecimal digits of the SHA-256 of the canonical identity: equal specs, equal ids."""
        return hashlib.sha256(canonical_json(self.identity()).encode()).hexdigest()[:8]

    @property
    def run_id(self) -> str:
        """Name of the run's folder: readable, and unique by the spec id."""
        return f"{self.model.name}-{self.method.name}-s{self.seed}-{self.spec_id}"
