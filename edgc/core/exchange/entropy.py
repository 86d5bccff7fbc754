"""GDS, EDGC's gradient data sampler: entropy of gradients from a small sample (arXiv 2511.10333).

Which steps are sampled (α) is the exchange's business; here is which elements (β), and the estimators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.lazy import torch
from edgc.core.ops.moments import histogram, moments

if TYPE_CHECKING:
    from torch import Tensor

    from edgc.core.policies.policy import Sampling

BINS = 1000  #: of the histogram estimators, as in the authors' released code
SMALLEST_DEVIATION = 1e-38  #: stands in for a standard deviation or bin width of zero: about −86 nats


def sampled_entropy(gradients: Sequence[NamedTensor], sampling: Sampling) -> dict[str, Tensor]:
    """Entropy of each gradient in nats, by name: float64 scalars on its device.

    Estimators: `gaussian` ½ ln(2πe σ²), falls by ln 2 when the gradient is halved; `histogram` −Σ p ln p over
    1000 equal bins from smallest to largest, unchanged by scale; `histogram_differential` the same + ln(bin
    width), which agrees with `gaussian` on normal data. A constant gradient has the finite floor of
    `SMALLEST_DEVIATION`; one of zeros (an expert that no token met) has no entropy: NaN. Non-finite elements are
    skipped; without any finite one it is NaN.
    """
    if not gradients:
        return {}
    tensors = [g.tensor for g in gradients]
    strides = [sample_stride(tensor.shape, sampling.rate) for tensor in tensors]
    of = moments(tensors, strides)
    if sampling.estimator == "gaussian":
        nats = 0.5 * math.log(2 * math.pi * math.e) + _log(of.deviation)
    else:
        nats = _histogram_entropy(histogram(tensors, strides, of, BINS))
        if sampling.estimator == "histogram_differential":
            nats = nats + _log((of.maximum - of.minimum) / BINS)
        nats = torch.where(of.count > 0, nats, torch.nan)
    nats = torch.where((of.minimum == 0) & (of.maximum == 0), torch.nan, nats)
    return dict(zip((g.name for g in gradients), nats, strict=True))


def sample_stride(shape: Sequence[int], rate: float) -> int:
    """Of how many runs of 8 elements, row-major, one is in the sample: at least 1/`rate`, co-prime with the row length.

    Runs, because a GPU reads whole sectors of 32 bytes: every fifth element would read them all. A stride that
    divides the row length would read the same few columns of every row, and bias the estimate by up to .3 nats; a
    co-prime one visits all columns equally often.
    """
    stride = math.ceil(round(1 / rate, 6))
    row = shape[-1] if len(shape) > 1 else 1
    while math.gcd(stride, row) > 1:
        stride += 1
    return stride


def _histogram_entropy(counts: Tensor) -> Tensor:
    share = counts / counts.sum(-1, keepdim=True)
    return -torch.xlogy(share, share).sum(-1)


def _log(deviation: Tensor) -> Tensor:
    return deviation.clamp(min=SMALLEST_DEVIATION).log()
