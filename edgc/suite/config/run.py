"""Everything one training run depends on, and its name."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Literal

from pydantic import Field, model_validator

from edgc.core.aggregators.controls import TorchPowerSGDSettings
from edgc.core.aggregators.lowrank import LowRankSettings
from edgc.core.base.files import canonical_json
from edgc.core.settings.method import EVERY_STEP, Method
from edgc.core.settings.settings import Settings
from edgc.suite.config.cluster import Cluster, Parallel
from edgc.suite.config.corpus import Corpus
from edgc.suite.config.model import Model
from edgc.suite.config.training import Training


class RunSpec(Settings):
    """Everything one training run depends on."""

    model: Model
    method: Method
    corpus: Corpus
    cluster: Cluster
    parallel: Parallel
    training: Training
    seed: int = Field(ge=0, description="Seed of initialisation, data order and methods")
    loop: Literal["megatron", "ddp", "stacked"] = Field(
        "megatron",
        description="megatron: megatron-core's model and schedule; ddp: a plain GPT-2 in a plain loop under PyTorch's "
        "DistributedDataParallel, or under FSDP2 if training.shard is full; stacked: all data-parallel replicas in one "
        "process, for losses and bytes, not for times",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> RunSpec:
        p, t = self.parallel, self.training
        if self.processes != self.cluster.processes:
            raise ValueError(
                f"loop {self.loop}, parallel: tensor {p.tensor} × pipeline {p.pipeline} × data {p.data} = "
                f"{self.processes} processes, "
                f"but cluster {self.cluster.name} has {self.cluster.nodes} × {self.cluster.processes_per_node} "
                f"= {self.cluster.processes}"
            )
        if self.model.num_layers % p.pipeline:
            raise ValueError(f"parallel.pipeline {p.pipeline} must divide model.num_layers {self.model.num_layers}")
        if self.model.num_heads % p.tensor:
            raise ValueError(f"parallel.tensor {p.tensor} must divide model.num_heads {self.model.num_heads}")
        if t.global_batch % (t.micro_batch * p.data):
            raise ValueError(
                f"training.global_batch {t.global_batch} must be a multiple of "
                f"micro_batch {t.micro_batch} × parallel.data {p.data}"
            )
        if p.pipeline > 1 and self.cluster.processes_per_gpu > 1:
            raise ValueError(
                f"parallel.pipeline {p.pipeline}: processes that share a GPU exchange over gloo, which sends "
                "no activations from a GPU to the next stage, but cluster.processes_per_gpu is "
                f"{self.cluster.processes_per_gpu}; use parallel.pipeline 1"
            )
        stages = self.method.placement.stages
        if stages is not None and max(stages, default=0) >= p.pipeline:
            raise ValueError(
                f"method.placement.stages {stages}: parallel.pipeline {p.pipeline} has 0 to {p.pipeline - 1}"
            )
        if self.model.num_layers < (least := self.method.synchronisation.least_layers):  # type: ignore[attr-defined]
            raise ValueError(
                f"method.synchronisation: method {self.method.name} exchanges {least} parts of a model's layers in "
                f"turn, but model {self.model.name} has {self.model.num_layers} (model.num_layers); use at most as "
                "many fragments"
            )
        return self

    @model_validator(mode="after")
    def _pipeline_traffic_fits(self) -> RunSpec:
        method, t = self.method, self.training
        for setting, on in (("pipeline", method.pipeline.compresses), ("fused_embedding", method.fused_embedding)):
            if on and self.parallel.pipeline < 2:
                raise ValueError(
                    f"method.{setting} is for several pipeline stages, but parallel.pipeline is "
                    f"{self.parallel.pipeline}; use at least 2, or leave method.{setting} out"
                )
        for direction in ("forward", "backward"):
            try:
                codec = getattr(method.pipeline, direction)
                codec.check_shape(t.micro_batch * self.model.seq_length, self.model.hidden_size)
            except ValueError as error:
                raise ValueError(f"method.pipeline.{direction}: {error}") from None
        return self

    @model_validator(mode="after")
    def _loop_fits(self) -> RunSpec:
        p, hook = self.parallel, isinstance(self.method.aggregator, TorchPowerSGDSettings)
        if self.loop == "ddp" and (p.tensor > 1 or p.pipeline > 1):
            raise ValueError(
                f"loop ddp is data-parallel only: parallel.tensor {p.tensor} and .pipeline {p.pipeline}; use 1 for both"
            )
        if hook and (self.loop != "ddp" or self.training.shard != "none"):
            raise ValueError(
                f"method {self.method.name} is a hook of PyTorch's DDP: it needs loop: ddp and training.shard: none, "
                f"but has loop: {self.loop} and shard: {self.training.shard}"
            )
        if self.loop == "ddp" and (why := self.method.synchronisation.no_hook):  # type: ignore[attr-defined]
            raise ValueError(
                f"loop ddp: method {self.method.name} has synchronisation {self.method.synchronisation.name}, which "  # type: ignore[attr-defined]
                f"{why}: it cannot be a hook; use a method with synchronisation every_step, or loop: megatron"
            )
        if self.loop == "ddp" and self.method.policy.reads_seconds:  # type: ignore[attr-defined]
            raise ValueError(
                f"loop ddp: policy {self.method.policy.name} reads how long a step takes, which a hook does not learn; "  # type: ignore[attr-defined]
                "use another policy, or loop: megatron"
            )
        if self.loop == "ddp" and self.training.probe.looks:
            raise ValueError("training.probe: loop ddp has none; leave it out, or use loop: megatron")
        return self

    @model_validator(mode="after")
    def _stacked_fits(self) -> RunSpec:
        if self.loop != "stacked":
            return self
        for setting, wrong, instead in (
            ("parallel.tensor", self.parallel.tensor > 1, "1"),
            ("parallel.pipeline", self.parallel.pipeline > 1, "1"),
            ("cluster.links", self.cluster.links is not None, "null"),
            ("training.recompute", self.training.recompute, "false"),
            ("method.overlap", self.method.overlap, "false"),
        ):
            if wrong:
                raise ValueError(
                    f"loop stacked, method {self.method.name}: all replicas are in one process, which has no {setting};"
                    f" set it to {instead}, or use loop: megatron"
                )
        if self.method.policy.reads_seconds or self.method.synchronisation.paced:  # type: ignore[attr-defined]
            raise ValueError(
                f"loop stacked: method {self.method.name} goes by how long exchanges take, and here nothing is sent; "
                "use another method, or loop: megatron"
            )
        return self

    @model_validator(mode="after")
    def _shards_fit(self) -> RunSpec:
        t, method = self.training, self.method
        if t.shard == "none":
            if t.parameter_wire != "exact":
                raise ValueError(
                    f"training.parameter_wire {t.parameter_wire}: parameters travel only where they are sharded; set "
                    "training.shard: optimizer, or leave it out"
                )
            return self
        if (needed := {"optimizer": "megatron", "full": "ddp"}[t.shard]) != self.loop:
            raise ValueError(f"training.shard {t.shard}: loop {self.loop} does not shard like this; use loop: {needed}")
        if t.shard == "full" and self.parallel.data < 2:
            raise ValueError("training.shard full: there is nothing to shard over; use parallel.data of at least 2")
        if method.synchronisation != EVERY_STEP:
            raise ValueError(
                f"training.shard {t.shard}: method {method.name} has synchronisation {method.synchronisation.name}, "
                "which changes whole parameters or averages, and a rank updates a part of them only; use every_step"
            )
        if t.probe.looks:
            raise ValueError(
                f"training.shard {t.shard}: training.probe looks at whole averages, and a rank has a part of them only"
            )
        return self

    @model_validator(mode="after")
    def _optimizer_fits(self) -> RunSpec:
        optimizer, method, tensor = self.training.optimizer, self.method, self.parallel.tensor
        synchronisation = f"method {method.name}: synchronisation {method.synchronisation.name}"
        if method.optimizer not in (None, optimizer):
            raise ValueError(
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
                    raise ValueError(
                        f"training.optimizer muon: needs whole matrices under megatron, but {setting} is {value}; use "
                        f"{setting}: {allowed}, or optimizer: adamw"
                    )
            if method.synchronisation.reads_adam:
                raise ValueError(
                    f"training.optimizer muon: {synchronisation} reads AdamW's moments of all parameters; use another "
                    "correction, or optimizer: adamw"
                )
            if method.synchronisation.updates:
                raise ValueError(
                    f"training.optimizer muon: {synchronisation} updates parameters itself, and the others by AdamW; "
                    "use optimizer: adamw"
                )
        if method.synchronisation.whole_matrices and tensor > 1:
            raise ValueError(f"{synchronisation} needs whole matrices, but parallel.tensor is {tensor}; use 1")
        return self

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

        Defaults of settings that are younger than published runs are left out, here or by the field's own `exclude_if`:
        finished runs are found by their id."""
        exclude: dict[str, Any] = {
            "method": dict.fromkeys(("title", "source", "summary"), True),
            "cluster": {"schedule", "port", "bind_to_cores"},
        }
        aggregator = self.method.aggregator
        if isinstance(aggregator, LowRankSettings) and aggregator.wire_dtype == "fp32":
            exclude["method"]["aggregator"] = {"wire_dtype"}
        if self.method.synchronisation == EVERY_STEP:
            exclude["method"]["synchronisation"] = True
        if self.cluster.kernels == "auto":
            exclude["cluster"].add("kernels")
        if not self.cluster.environment:
            exclude["cluster"].add("environment")
        if self.cluster.links is None:
            exclude["cluster"].add("links")
        elif self.cluster.links.trace is not None:
            exclude["cluster"] = dict.fromkeys(exclude["cluster"], True) | {"links": {"trace": {"title"}}}
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
