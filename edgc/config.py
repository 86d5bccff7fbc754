"""The only definition of a setting. YAML files, the JSON schema, the CLI and the spec id all come from here.

`configs/experiments/X.yaml` names a model, methods, seeds …; `load_experiment` reads it with the files it names
and `Experiment.runs` is its matrix, one `RunSpec` a run. A RunSpec is complete: training needs nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from edgc.aggregators import AGGREGATORS
from edgc.errors import UserError
from edgc.files import canonical_json
from edgc.link_codecs import PipelineTraffic
from edgc.policies import POLICIES
from edgc.policies.windowed_settings import Estimator
from edgc.settings import S, Settings, merge, validate

CONFIGS = Path("configs")

AggregatorUnion = Annotated[reduce(or_, (a.Settings for a in AGGREGATORS.values())), Field(discriminator="name")]  # type: ignore[valid-type]
PolicyUnion = Annotated[reduce(or_, (p.Settings for p in POLICIES.values())), Field(discriminator="name")]  # type: ignore[valid-type]


class Model(Settings):
    """A GPT-2: learned positions, pre-layer-norm, GELU, tied embeddings (configs/models/)."""

    name: str = Field(description="Name of the model, equal to the file's")
    num_layers: PositiveInt = Field(description="Transformer layers")
    hidden_size: PositiveInt = Field(description="Width of the residual stream")
    num_heads: PositiveInt = Field(description="Attention heads")
    seq_length: PositiveInt = Field(description="Tokens in a sequence")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout of attention, hidden states and embeddings")
    vocab_multiple: PositiveInt = Field(128, description="The vocabulary is padded to a multiple of this")

    @model_validator(mode="after")
    def _heads_divide(self) -> Model:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} must be a multiple of num_heads {self.num_heads}")
        return self


class Placement(Settings):
    """Which gradients a method may compress; all others travel dense."""

    stages: tuple[NonNegativeInt, ...] | None = Field(
        None, min_length=1, description="Pipeline stages that compress, from 0; null: all"
    )
    exclude: tuple[str, ...] = Field(
        (),
        description="Substrings of parameter names that always travel dense; the last stage's copy of "
        "embedding.word_embeddings is output_layer",
    )


class Method(Settings):
    """aggregator × policy × placement (configs/methods/)."""

    name: str = Field(description="Name of the method, equal to the file's")
    title: str = Field(description="As printed in tables and figures")
    source: str = Field(description="Paper or code that defines it")
    summary: str = Field(description="What it does, in a sentence")
    aggregator: AggregatorUnion = Field(description="How a gradient crosses the network")  # type: ignore[valid-type]
    policy: PolicyUnion = Field(description="How much and when to compress")  # type: ignore[valid-type]
    placement: Placement = Field(Placement(), description="Which gradients may be compressed")  # type: ignore[call-arg]
    overlap: bool = Field(False, description="Start a bucket's exchange while backward still runs")
    pipeline: PipelineTraffic = Field(
        PipelineTraffic(),  # type: ignore[call-arg]
        description="How the traffic between pipeline stages is compressed",
    )
    fused_embedding: bool = Field(
        False,
        description="Average the tied embedding's gradient over data-parallel ranks and sum its two stages' copies in "
        "one uncompressed all-reduce, in the place of two exchanges (Optimus-CC)",
    )

    @model_validator(mode="after")
    def _policy_fits(self) -> Method:
        wants = AGGREGATORS[self.aggregator.name].amount  # type: ignore[attr-defined]
        gives = self.policy.decides()  # type: ignore[attr-defined]
        if wants != gives:
            raise ValueError(
                f"aggregator {self.aggregator.name} needs a policy that decides a {wants or 'nothing'}, "  # type: ignore[attr-defined]
                f"but policy {self.policy.name} decides a {gives or 'nothing'}"  # type: ignore[attr-defined]
            )
        if self.policy.reads_spectrum:  # type: ignore[attr-defined]
            telling = [name for name, kind in AGGREGATORS.items() if hasattr(kind, "spectrum")]
            if self.aggregator.name not in telling or not self.aggregator.error_feedback:  # type: ignore[attr-defined]
                raise ValueError(
                    f"policy {self.policy.name} reads the spectrum of what was sent and the error that is left: "  # type: ignore[attr-defined]
                    f"it needs aggregator {' or '.join(telling)} with error_feedback: true"
                )
        if self.policy.aligned and 0 not in (self.placement.stages or (0,)):  # type: ignore[attr-defined]
            raise ValueError(
                f"policy {self.policy.name} aligns all stages with the first one, "  # type: ignore[attr-defined]
                f"but placement.stages {list(self.placement.stages or ())} does not compress it; set alignment: false"
            )
        return self


class Tokenizer(Settings):
    """Byte-level BPE: trained on the corpus, or GPT-2's."""

    kind: Literal["bpe", "gpt2"] = Field(description="bpe: trained on the corpus; gpt2: OpenAI's 50257 tokens")
    vocab_size: int | None = Field(None, ge=257, le=65535, description="bpe: tokens, with <|endoftext|>")
    path: str | None = Field(
        None, description="gpt2: folder with vocab.json and merges.txt (may use ${VARIABLES}); null: from the hub"
    )

    @model_validator(mode="after")
    def _fields_fit(self) -> Tokenizer:
        if self.kind == "bpe" and self.vocab_size is None:
            raise ValueError("vocab_size is needed for tokenizer kind bpe (257 to 65535)")
        if self.kind == "bpe" and self.path is not None:
            raise ValueError("path is for tokenizer kind gpt2; a bpe tokenizer is trained on the corpus")
        if self.kind == "gpt2" and self.vocab_size is not None:
            raise ValueError("vocab_size is for tokenizer kind bpe; gpt2 has 50257")
        return self


class Corpus(Settings):
    """Text to train on (configs/corpora/)."""

    name: str = Field(description="Name of the corpus, equal to the file's")
    source: Literal["stdlib", "files", "hub"] = Field(
        description="stdlib: the installed Python's standard library; files: local text or JSONL; hub: Hugging Face"
    )
    paths: tuple[str, ...] = Field((), description="files: glob patterns, may use ${VARIABLES}")
    split_on: Literal["file", "blank_line", "line"] = Field(
        "file", description="files: what ends a document in a text file (JSONL: always one document a line)"
    )
    text_field: str = Field("text", description="files (JSONL), hub: the field that holds the text")
    dataset: str | None = Field(None, description="hub: data set name, e.g. Skylion007/openwebtext")
    subset: str | None = Field(None, description="hub: configuration name of the data set")
    split: str = Field("train", description="hub: split to stream")
    max_bytes: PositiveInt | None = Field(None, description="Stop after this many bytes of text; null: all")
    validation_fraction: float = Field(0.05, gt=0, lt=1, description="Share of the documents held out")
    tokenizer: Tokenizer = Field(description="How text becomes tokens")

    @model_validator(mode="after")
    def _source_fits(self) -> Corpus:
        if (self.source == "files") != bool(self.paths):
            raise ValueError("paths: give glob patterns for source files, and for no other source")
        if (self.source == "hub") != (self.dataset is not None):
            raise ValueError("dataset: name one for source hub, and for no other source")
        return self


class Schedule(Settings):
    """How a cluster's batch system is asked for the machines. Not part of a run's identity."""

    partition: str | None = Field(None, description="SLURM partition; null: the site's default")
    account: str | None = Field(None, description="SLURM account; null: the site's default")
    time_minutes: PositiveInt = Field(60, description="Time limit of one training job, in minutes")
    memory_mb_per_node: PositiveInt = Field(16000, description="Memory of a node for the job, in MB")
    cpus_per_task: PositiveInt = Field(1, description="CPU cores per process")
    extra: str = Field("", description="Further sbatch options, e.g. --constraint=h100")


class Cluster(Settings):
    """Machines and links (configs/clusters/)."""

    name: str = Field(description="Name of the cluster, equal to the file's")
    device: Literal["cpu", "cuda"] = Field(description="Where a process computes")
    device_model: str = Field(description="What the device is, as printed, e.g. V100-SXM2-32GB")
    nodes: PositiveInt = Field(description="Machines")
    processes_per_node: PositiveInt = Field(description="Processes, one per GPU, on a machine")
    link_gbit: float | None = Field(None, gt=0, description="Nominal link of a node in Gbit/s; null: unknown")
    interface: str | None = Field(None, description="Network interface for gloo and NCCL; null: their choice")
    port: int | None = Field(None, ge=1024, le=65535, description="Rendezvous port; null: a free one")
    threads_per_process: PositiveInt = Field(1, description="Threads of a process on CPU")
    timeout_seconds: PositiveInt = Field(600, description="A collective that takes longer ends the run")
    schedule: Schedule = Field(Schedule(), description="What the batch system is asked for")  # type: ignore[call-arg]

    @property
    def processes(self) -> int:
        """All processes of a job."""
        return self.nodes * self.processes_per_node


class Parallel(Settings):
    """Degrees of parallelism; their product is the number of processes."""

    tensor: PositiveInt = Field(1, description="Tensor-parallel degree")
    pipeline: PositiveInt = Field(1, description="Pipeline stages")
    data: PositiveInt = Field(1, description="Data-parallel degree")

    @property
    def processes(self) -> int:
        """tensor × pipeline × data."""
        return self.tensor * self.pipeline * self.data


class Probe(Settings):
    """A full look at the gradients' matrices while a run trains, for experiments about gradients themselves.

    No method needs it. It looks on the first data- and tensor-parallel rank of every stage.
    """

    entropy_every: PositiveInt | None = Field(
        None, description="Steps between entropies of every matrix, before the exchange; null: none"
    )
    rates: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (1.0, 0.5, 0.25, 0.1, 0.05), description="Shares of the elements that entropy is estimated from; one is 1"
    )
    estimators: tuple[Estimator, ...] = Field(("gaussian",), min_length=1, description="Estimators of the entropy")
    spectra_every: PositiveInt | None = Field(
        None, description="Steps between singular values, element histograms and cosines of the averages; null: none"
    )
    timed_shapes: tuple[tuple[PositiveInt, PositiveInt], ...] = Field(
        (),
        description="Random matrices on which sampling is timed too, before training: those of a model too large to "
        "train here",
    )
    window: PositiveInt = Field(20, description="Steps of a window of the tables and figures about sampling")

    @model_validator(mode="after")
    def _full_entropy_is_measured(self) -> Probe:
        for what in ("rates", "estimators"):
            if len(set(getattr(self, what))) != len(getattr(self, what)):
                raise ValueError(f"{what} {list(getattr(self, what))} names one twice")
        if 1.0 not in self.rates:
            raise ValueError(f"rates {list(self.rates)} must hold 1: the full entropy is what others are held against")
        return self

    @property
    def looks(self) -> bool:
        """Whether there is anything to look at."""
        return self.entropy_every is not None or self.spectra_every is not None


class Training(Settings):
    """One training run. Defaults are those of the EDGC paper's set-ups where they are known."""

    iterations: PositiveInt = Field(description="Optimizer steps")
    micro_batch: PositiveInt = Field(description="Sequences in a micro-batch")
    global_batch: PositiveInt = Field(description="Sequences in a step, over all data-parallel ranks")
    lr: float = Field(1.5e-4, gt=0, description="Peak learning rate of AdamW")
    min_lr: NonNegativeFloat = Field(1e-5, description="Final learning rate of the cosine")
    decay_iterations: PositiveInt | None = Field(None, description="Steps of the cosine; null: iterations")
    warmup_fraction: float = Field(0.01, ge=0, lt=1, description="Share of the cosine's steps with a linear warm-up")
    weight_decay: NonNegativeFloat = Field(0.01, description="AdamW weight decay")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW β₁")
    beta2: float = Field(0.999, ge=0, lt=1, description="AdamW β₂")
    eps: float = Field(1e-8, gt=0, description="AdamW ε")
    clip: NonNegativeFloat = Field(1.0, description="Global gradient norm limit; 0: none")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="Precision of compute; gradients are fp32")
    bucket_parameters: PositiveInt | None = Field(
        None, description="Parameters in a gradient bucket; null: megatron's default"
    )
    recompute: bool = Field(False, description="Recompute activations in backward")
    eval_interval: PositiveInt = Field(1000, description="Steps between evaluations")
    eval_batches: PositiveInt = Field(10, description="Global batches in an evaluation")
    checkpoint_interval: PositiveInt = Field(10000, description="Steps between checkpoints")
    tensorboard: bool = Field(False, description="Write TensorBoard events to the run's folder")
    probe: Probe = Field(Probe(), description="A full look at the gradients; by default none")  # type: ignore[call-arg]

    @model_validator(mode="after")
    def _cosine_falls(self) -> Training:
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr {self.min_lr} must not exceed lr {self.lr}")
        return self


class RunSpec(Settings):
    """Everything one training run depends on."""

    model: Model
    method: Method
    corpus: Corpus
    cluster: Cluster
    parallel: Parallel
    training: Training
    seed: int = Field(ge=0, description="Seed of initialisation, data order and methods")

    @model_validator(mode="after")
    def _fits_together(self) -> RunSpec:
        p, t = self.parallel, self.training
        if p.processes != self.cluster.processes:
            raise ValueError(
                f"parallel: tensor {p.tensor} × pipeline {p.pipeline} × data {p.data} = {p.processes} processes, "
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
        stages = self.method.placement.stages
        if stages is not None and max(stages, default=0) >= p.pipeline:
            raise ValueError(
                f"method.placement.stages {stages}: parallel.pipeline {p.pipeline} has 0 to {p.pipeline - 1}"
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

    @property
    def micro_batches(self) -> int:
        """Micro-batches a data-parallel rank runs in a step."""
        return self.training.global_batch // (self.training.micro_batch * self.parallel.data)

    def identity(self) -> dict[str, Any]:
        """What the result depends on, as plain values: without descriptions, the batch system's settings, and the
        options of a probe that looks at nothing."""
        exclude: dict[str, set[str]] = {"method": {"title", "source", "summary"}, "cluster": {"schedule", "port"}}
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


class Task(Settings):
    """A zero-shot task (configs/tasks/)."""

    name: str = Field(description="Name of the task, equal to the file's")
    lm_eval: str | None = Field(None, description="lm-eval's stock task; null: generated from held-out text")
    metric: str = Field("acc", description="lm-eval's metric that the accuracy table shows")
    local_file: str | None = Field(
        None, description="stock task: its evaluation split in a local mirror (EDGC_EVAL_DATA), original schema"
    )

    @model_validator(mode="after")
    def _data_fits(self) -> Task:
        if self.lm_eval is None and self.local_file is not None:
            raise ValueError("local_file is for a stock task (lm_eval); others are generated from the corpus")
        return self


class Judgement(Settings):
    """How a difference in quality is judged."""

    margin_nats: NonNegativeFloat = Field(
        0.02, description="A validation-loss gap to the baseline up to this counts as preserved"
    )
    baseline: str = Field("dense", description="Method that the others are compared with")


class Experiment(Settings):
    """A matrix of runs and what is shown of them (configs/experiments/)."""

    name: str = Field(description="Name of the experiment, equal to the file's")
    title: str = Field(description="As printed on the report")
    shows: str = Field(description="What the experiment shows, in a sentence")
    minutes: float = Field(gt=0, description="Rough duration on the named cluster, in minutes")
    mode: Literal["train", "simulate"] = Field("train", description="train: measure; simulate: the cluster model")
    models: tuple[str, ...] = Field(min_length=1, description="Files in configs/models")
    methods: tuple[str, ...] = Field(min_length=1, description="Files in configs/methods")
    seeds: tuple[int, ...] = Field((1,), min_length=1, description="One run per seed")
    corpus: str = Field(description="File in configs/corpora")
    cluster: str = Field(description="File in configs/clusters")
    parallel: Parallel = Field(description="Degrees of parallelism")
    training: Training = Field(description="How to train")
    overrides: dict[str, dict[str, Any]] = Field(
        {}, description="By method: settings that replace parts of its RunSpec, e.g. {topk: {training: {lr: 1e-3}}}"
    )
    tasks: tuple[str, ...] = Field((), description="Files in configs/tasks")
    task_limit: PositiveInt | None = Field(None, description="Examples per task; null: all")
    judgement: Judgement = Field(Judgement(), description="How quality is judged")  # type: ignore[call-arg]
    tables: tuple[str, ...] = Field((), description="Tables beside those that every experiment has")
    figures: tuple[str, ...] = Field((), description="Figures beside those that every experiment has")

    @model_validator(mode="after")
    def _names_fit(self) -> Experiment:
        for what in ("models", "methods", "seeds", "tables", "figures"):
            names = getattr(self, what)
            if len(set(names)) != len(names):
                raise ValueError(f"{what} {list(names)} names one twice")
        if unknown := set(self.overrides) - set(self.methods):
            raise ValueError(f"overrides for {sorted(unknown)}, which are not among methods {list(self.methods)}")
        for method, changes in self.overrides.items():
            if other := set(changes) - {"method", "training"}:
                raise ValueError(f"overrides.{method} changes {sorted(other)}; only method and training may differ")
        return self

    def runs(self, configs: Path = CONFIGS) -> list[RunSpec]:
        """The matrix models × methods × seeds, in that order."""
        return list(self._runs(configs))

    def _runs(self, configs: Path) -> Iterator[RunSpec]:
        cluster = load(Cluster, self.cluster, configs).model_dump()
        corpus = load(Corpus, self.corpus, configs).model_dump()
        models = {name: load(Model, name, configs).model_dump() for name in self.models}
        methods = {name: load(Method, name, configs).model_dump() for name in self.methods}
        for model in models.values():
            for name, method in methods.items():
                for seed in self.seeds:
                    base = {
                        "model": model,
                        "method": method,
                        "corpus": corpus,
                        "cluster": cluster,
                        "parallel": self.parallel.model_dump(),
                        "training": self.training.model_dump(),
                        "seed": seed,
                    }
                    where = f"experiment {self.name}, method {name}"
                    yield validate(RunSpec, merge(base, self.overrides.get(name, {})), where)

    def run(self, run_id: str, configs: Path = CONFIGS) -> RunSpec:
        """The run of this id. Raises `UserError` if the experiment has none."""
        runs = {spec.run_id: spec for spec in self.runs(configs)}
        if run_id not in runs:
            raise UserError(f"run {run_id}: experiment {self.name} has {', '.join(runs)}")
        return runs[run_id]


FOLDERS: dict[type[BaseModel], str] = {
    Experiment: "experiments",
    Model: "models",
    Method: "methods",
    Cluster: "clusters",
    Corpus: "corpora",
    Task: "tasks",
}


def available(kind: type[BaseModel], configs: Path = CONFIGS) -> list[str]:
    """Names that can be loaded for `kind`, sorted."""
    return sorted(path.stem for path in (configs / FOLDERS[kind]).glob("*.yaml"))


def load(kind: type[S], name: str, configs: Path = CONFIGS) -> S:
    """Read `configs/<folder>/<name>.yaml`. Raises `UserError` if it is missing or not valid."""
    path = configs / FOLDERS[kind] / f"{name}.yaml"
    if not path.is_file():
        raise UserError(
            f"{kind.__name__.lower()} {name!r}: no file {path}; there are: {', '.join(available(kind, configs))}"
        )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
    loaded = validate(kind, values, str(path))
    if getattr(loaded, "name", name) != name:
        raise UserError(f"{path}: name is {loaded.name!r}, but must equal the file's, {name!r}")  # type: ignore[attr-defined]
    return loaded


def load_experiment(name: str, configs: Path = CONFIGS) -> Experiment:
    """Read an experiment and validate every file it names, so that nothing fails after the first launch."""
    experiment = load(Experiment, name, configs)
    for task in experiment.tasks:
        load(Task, task, configs)
    if experiment.judgement.baseline not in experiment.methods:
        raise UserError(
            f"experiment {name}: judgement.baseline {experiment.judgement.baseline!r} is not among its methods"
        )
    if experiment.mode == "simulate":
        raise UserError(f"experiment {name}: mode = simulate: the cluster model is not built yet; allowed: train")
    experiment.runs(configs)
    return experiment
