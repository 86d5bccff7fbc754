"""Torch's optimizers as a training asks for them, by whatever engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgc.suite.config import Training


def adamw(t: Training, parameters: Sequence[Tensor]) -> torch.optim.AdamW:
    """As megatron's: biases and layer norms do not decay."""
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": t.weight_decay},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=t.lr, betas=(t.beta1, t.beta2), eps=t.eps, fused=True)


def muon(t: Training, matrices: Sequence[Tensor], **group: Any) -> torch.optim.Muon:
    """Of one group of parameters, with `group`'s further settings; its rate is `lr_mult` times the training's."""
    return torch.optim.Muon(
        [{"params": list(matrices), "lr_mult": t.muon.lr_ratio} | group],
        lr=t.lr * t.muon.lr_ratio,
        weight_decay=t.weight_decay,
        momentum=t.muon.momentum,
        nesterov=t.muon.nesterov,
        ns_steps=t.muon.ns_steps,
        adjust_lr_fn=t.muon.lr_scale,
    )


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The training's learning rate of this step."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_mult", 1.0)
