"""Few bits an element, in torch: stochastic integers scaled by the largest magnitude, or signs and a mean magnitude."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.noise.reference import uniform
from edgc.core.ops.quantize.packing import pack, unpack

Code = Literal["int8", "int4", "sign"]
#: Elements a byte, and the largest level.
PER_BYTE: dict[Code, int] = {"int8": 1, "int4": 2, "sign": 8}
LEVELS: dict[Code, int] = {"int8": 127, "int4": 7, "sign": 1}


def packed_bytes(numel: int, code: Code) -> int:
    """Bytes of a packed tensor, without its scale."""
    return -(-numel // PER_BYTE[code])


def quantize(tensors: Sequence[Tensor], code: Code, seed: int, streams: Sequence[int]) -> tuple[Tensor, Tensor]:
    """All tensors packed one behind the other (uint8), each from a byte of its own, and their scales (fp32).

    `int8`, `int4`: x/s·L rounded up or down at random, so that the mean is right, by counter-based bits of the seed
    and the tensor's stream (QSGD, arXiv 1610.02132, with the largest magnitude as norm): s = max |x|, L = 127 or 7.
    An int4 goes with the next one into a byte, the first in its lower half. `sign`: bit i is set where x ≥ 0,
    s = mean |x| (signSGD with a scale, arXiv 1901.09847). An element that is not finite makes its tensor's scale NaN.
    """
    packed, scales = [], []
    for tensor, stream in zip(tensors, streams, strict=True):
        values = tensor.detach().reshape(-1).float()
        magnitude = values.abs()
        scale = values.new_zeros(())
        if len(values):
            scale = magnitude.mean() if code == "sign" else magnitude.amax()
        scale = torch.where(values.isfinite().all(), scale, torch.nan)
        packed.append(pack(_levels(values, scale, code, seed, stream), 8 // PER_BYTE[code]))
        scales.append(scale)
    return torch.cat(packed), torch.stack(scales)


def dequantize(outs: Sequence[Tensor], packed: Tensor, scales: Tensor, code: Code) -> None:
    """Fill in `outs` from what `quantize` gave for tensors of their shapes."""
    parts = packed.split([packed_bytes(out.numel(), code) for out in outs])
    for part, scale, out in zip(parts, scales, outs, strict=True):
        levels = unpack(part, out.numel(), 8 // PER_BYTE[code]).float()
        signed = levels * 2 - 1 if code == "sign" else levels - LEVELS[code]
        out.copy_((signed * (scale / LEVELS[code])).view_as(out))


def _levels(values: Tensor, scale: Tensor, code: Code, seed: int, stream: int) -> Tensor:
    """Unsigned levels: of integers shifted by the largest one, of signs 0 and 1."""
    if code == "sign":
        return (values >= 0).to(torch.uint8)
    most = LEVELS[code]
    share = torch.where(scale > 0, values / scale, 0.0)
    noise = uniform(seed, stream, len(values), values.device)
    return ((share * most + noise).floor().clamp_(-most, most) + most).to(torch.uint8)
