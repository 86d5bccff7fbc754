"""The gradients' norm and their clipping, in a few launches and without a wait for the device.

Without Apex and Transformer Engine megatron-core reads the norm of every parameter to the host, hundreds a step of a
large model, and scales gradients one by one. These replace its two functions, with the same results bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from megatron.core.optimizer import clip_grads
from megatron.core.utils import local_multi_tensor_l2_norm, local_multi_tensor_scale
from torch import Tensor

from edgc.core.ops.copies import copy_all


def l2_norm(chunk_size: int, overflow: Tensor, lists: Sequence[Sequence[Tensor]], *unused: Any) -> tuple[Tensor, None]:
    """√Σ x² over all tensors of the one list in `lists`: fp32 [1], on their device."""
    (tensors,) = lists
    return torch.stack(torch._foreach_norm(list(tensors))).norm().view(1), None  # type: ignore[attr-defined]


def scale(chunk_size: int, overflow: Tensor, lists: Sequence[Sequence[Tensor]], factor: float) -> None:
    """The tensors of the second list ← those of the first · `factor`."""
    sources, targets = map(list, lists)
    if lists[0] is not lists[1]:
        copy_all(targets, sources)
    torch._foreach_mul_(targets, factor)  # type: ignore[attr-defined]


def install() -> None:
    """Replace megatron's fallbacks; what Apex or Transformer Engine have is left."""
    if clip_grads.l2_norm_impl is local_multi_tensor_l2_norm:
        clip_grads.l2_norm_impl = l2_norm
    if clip_grads.multi_tensor_scale_impl is local_multi_tensor_scale:
        clip_grads.multi_tensor_scale_impl = scale
