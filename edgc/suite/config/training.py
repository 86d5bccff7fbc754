"""How one run trains, and what is looked at meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from edgc.core.base.settings import Settings, younger
from edgc.core.exchange.parameter_gather import ParameterWire
from edgc.core.policies.windowed import Estimator


class Muon(Settings):
    """Momentum whose matrices are made semi-orthogonal by a Newton–Schulz iteration (Jordan et al. 2024).

    The settings are `torch.optim.Muon`'s. AdamW updates vectors and embeddings; `training.weight_decay` holds for both.
    """

    momentum: float = Field(0.95, ge=0, lt=1, description="μ of the momentum B ← μ B + (1 - μ) G")
    nesterov: bool = Field(True, description="Orthogonalise μ B + (1 - μ) G in the place of B")
    ns_steps: PositiveInt = Field(5, le=99, description="Newton–Schulz iterations, in bf16")
    lr_scale: Literal["match_rms_adamw", "original"] = Field(
        "match_rms_adamw",
        description="Factor of an m×n matrix's update. match_rms_adamw: .2·√max(m, n), so that AdamW's learning rate "
        "and weight decay fit (arXiv 2502.16982, section 2.2); original: √max(1, m/n)",
    )
    lr_ratio: PositiveFloat = Field(1.0, description="Learning rate of hidden matrices as a multiple of training.lr")


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

    def refusals(self) -> Iterator[str]:
        for what in ("rates", "estimators"):
            if len(set(getattr(self, what))) != len(getattr(self, what)):
                yield f"{what} {list(getattr(self, what))} names one twice"
        if 1.0 not in self.rates:
            yield f"rates {list(self.rates)} must hold 1: the full entropy is what others are held against"

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
    optimizer: Literal["adamw", "muon"] = younger(
        "adamw",
        description="adamw: of all parameters; muon: Muon of hidden matrices, AdamW of vectors and embeddings",
    )
    muon: Muon = younger(Muon(), description="Muon's settings")  # type: ignore[call-arg]
    clip: NonNegativeFloat = Field(1.0, description="Global gradient norm limit; 0: none")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="Precision of compute; gradients are fp32")
    bucket_parameters: PositiveInt | None = Field(
        None, description="Parameters in a gradient bucket; null: megatron's default"
    )
    shard: Literal["none", "optimizer", "full"] = younger(
        "none",
        description="none: every data-parallel rank updates all parameters; optimizer: each updates its share, keeps "
        "the optimizer's state of that share only, and gathers the others' (ZeRO-1, megatron-core's distributed "
        "optimizer); full: each also keeps only its share of parameters and gradients, and gathers every layer's for "
        "forward and backward (ZeRO-3, PyTorch's FSDP2; needs loop: ddp)",
    )
    parameter_wire: ParameterWire = younger(
        "exact",
        description="How updated parameters travel where they are sharded. exact: in their own precision; bf16; int8 "
        "in blocks of 256 with a scale (ZeRO++'s qwZ). Owners keep what they round",
    )
    recompute: bool = Field(False, description="Recompute activations in backward")
    eval_interval: PositiveInt = Field(1000, description="Steps between evaluations")
    eval_batches: PositiveInt = Field(10, description="Global batches in an evaluation")
    checkpoint_interval: PositiveInt = Field(10000, description="Steps between checkpoints")
    tensorboard: bool = Field(False, description="Write step records as TensorBoard events too, to <run>/tensorboard")
    probe: Probe = Field(Probe(), description="A full look at the gradients; by default none")  # type: ignore[call-arg]

    def refusals(self) -> Iterator[str]:
        if self.optimizer != "muon" and self.muon != Muon():  # type: ignore[call-arg]
            yield f"muon: is for optimizer: muon, not {self.optimizer}; leave it out, or set optimizer: muon"
        if self.min_lr > self.lr:
            yield f"min_lr {self.min_lr} must not exceed lr {self.lr}"
