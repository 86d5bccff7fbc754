"""Muon: momentum whose matrices are made semi-orthogonal by a Newton–Schulz iteration (Jordan et al. 2024)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from edgc.core.settings.settings import Settings


class Muon(Settings):
    """`torch.optim.Muon`'s settings. AdamW updates vectors and embeddings. `training.weight_decay` holds for both."""

    momentum: float = Field(0.95, ge=0, lt=1, description="μ of the momentum B ← μ B + (1 - μ) G")
    nesterov: bool = Field(True, description="Orthogonalise μ B + (1 - μ) G in the place of B")
    ns_steps: PositiveInt = Field(5, le=99, description="Newton–Schulz iterations, in bf16")
    lr_scale: Literal["match_rms_adamw", "original"] = Field(
        "match_rms_adamw",
        description="Factor of an m×n matrix's update. match_rms_adamw: .2·√max(m, n), so that AdamW's learning rate "
        "and weight decay fit (arXiv 2502.16982, section 2.2); original: √max(1, m/n)",
    )
    lr_ratio: PositiveFloat = Field(1.0, description="Learning rate of hidden matrices as a multiple of training.lr")
