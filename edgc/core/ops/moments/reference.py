"""Statistics of samples of many tensors, in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgc.core.base.lazy import Tensor, torch

RUN = 8  #: elements that a sample takes in one piece: of fp32 a sector, the least that a GPU reads of its memory


class Moments(NamedTuple):
    """One entry a tensor, float64, shape (tensors,). Over finite elements only; NaN where there are none."""

    count: Tensor
    mean: Tensor
    deviation: Tensor  #: root of the mean squared deviation from the mean (divided by count); a constant's is 0
    minimum: Tensor
    maximum: Tensor


def moments(tensors: Sequence[Tensor], strides: Sequence[int]) -> Moments:
    """Moments of every `strides[i]`-th run of 8 elements of `tensors[i]` in row-major order, from the first on.

    In the tensor's precision, at least fp32, with squares taken around the sample's own mean. One host
    synchronisation for all tensors, to see whether any needs its non-finite elements left out.
    """
    if not tensors:
        return Moments(*torch.empty(5, 0, dtype=torch.float64))
    samples = zip(tensors, strides, strict=True)
    rows = torch.stack([_moments(_sample(tensor, stride)) for tensor, stride in samples])
    for index in (~rows.isfinite().all(1)).nonzero().view(-1).tolist():
        rows[index] = _moments(_finite(_sample(tensors[index], strides[index])).double())
    return Moments(*rows.unbind(1))


def histogram(tensors: Sequence[Tensor], strides: Sequence[int], of: Moments, bins: int = 1000) -> Tensor:
    """Counts of the same samples in `bins` equal bins over [minimum, maximum]: float64 (tensors, bins).

    Non-finite elements are not counted; the maximum falls into the last bin, a constant into the first.
    """
    counts = torch.zeros(len(tensors), bins, dtype=torch.float64, device=of.count.device)
    for row, tensor, stride, finite, low, high in zip(
        counts, tensors, strides, of.count.tolist(), of.minimum, of.maximum, strict=True
    ):
        sample = _sample(tensor, stride)
        whole = sample if finite == sample.numel() else _finite(sample)
        bin_of = ((whole - low) / (high - low) * bins).int().clamp_(0, bins - 1)
        row.copy_(torch.bincount(bin_of, minlength=bins))
    return counts


def sample_size(numel: int, stride: int) -> int:
    """Elements in the sample of a tensor of `numel`."""
    whole, rest = divmod(numel, RUN * stride)
    return whole * RUN + min(rest, RUN)


def _sample(tensor: Tensor, stride: int) -> Tensor:
    flat = tensor.detach().reshape(-1)
    whole = flat.numel() // (RUN * stride) * (RUN * stride)
    first = flat[:whole].view(-1, stride, RUN)[:, 0].reshape(-1)  # reductions of strided memory are slow
    sample = flat if stride == 1 else torch.cat([first, flat[whole : whole + RUN]])
    return sample.to(torch.promote_types(torch.float32, tensor.dtype))


def _finite(sample: Tensor) -> Tensor:
    return sample[sample.isfinite()]


def _moments(sample: Tensor) -> Tensor:
    """One row of five; not finite where the sample is not, or where it leaves its precision."""
    if not sample.numel():
        return torch.tensor([0.0] + [torch.nan] * 4, dtype=torch.float64, device=sample.device)
    low, high = sample.aminmax()
    deviation = torch.where(high > low, sample.std(correction=0), 0.0)  # a constant's mean may be rounded
    return torch.stack([torch.full_like(low, sample.numel()), sample.mean(), deviation, low, high]).double()
