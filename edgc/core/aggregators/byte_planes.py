"""Byte planes and zstd: elements coded without loss, on the host.

A float's high byte, sign and most of the exponent, takes few values; its low bytes are close to random. So the bytes of
one place of all elements lie together, and each such plane is coded alone (as ZipNN does for models: arXiv 2411.05239;
zstd: RFC 8878).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgc.core.base.errors import UserError
from edgc.core.base.lazy import Tensor, torch

#: Bytes of exponents repeat by chance again and again; to tell where costs more than to code each by its frequency. A
#: table of only 2^8 places to look at finds few such repeats, and still the long ones, of zeros say.
LONG_REPEATS = {
    "strategy": 1,
    "window_log": 17,
    "hash_log": 8,
    "chain_log": 6,
    "search_log": 1,
    "min_match": 7,
    "target_length": 0,
}  # fmt: skip  strategy 1: zstd's `fast`


class BytePlanes:
    """A coder for one thread: zstd's memory is kept from call to call.

    Args:
        level: zstd's, from 1 (fast) to 22; None: `LONG_REPEATS`.

    Raises:
        UserError: the package zstandard is not installed.
    """

    def __init__(self, level: int | None = None) -> None:
        try:
            import zstandard
        except ModuleNotFoundError:
            raise UserError(
                'aggregator = lossless: its coder, the package zstandard, is not installed; pip install "edgc[suite]", '
                "or choose another aggregator"
            ) from None
        options = LONG_REPEATS if level is None else {"compression_level": level}
        parameters = zstandard.ZstdCompressionParameters(**options, write_content_size=False)
        self._compressor = zstandard.ZstdCompressor(compression_params=parameters)
        self._decompressor = zstandard.ZstdDecompressor()

    def encode(self, values: Tensor) -> tuple[Tensor, list[int]]:
        """The planes of `values` (1-D, not empty), one after another (uint8, on the host), and the bytes of each.

        A plane that zstd does not make smaller stays as it is: a plane's bytes are at most its elements, and fewer if
        and only if it is coded. Elements of one byte are one plane.
        """
        bytes_nw = values.contiguous().view(torch.uint8).cpu().numpy().reshape(len(values), -1)
        planes = [self._smaller(plane.tobytes()) for plane in bytes_nw.T]
        return torch.frombuffer(bytearray().join(planes), dtype=torch.uint8), [len(plane) for plane in planes]

    def _smaller(self, plane: bytes) -> bytes:
        coded = self._compressor.compress(plane)
        return coded if len(coded) < len(plane) else plane

    def decode(self, message: Tensor, lengths: Sequence[int], numel: int, kind: torch.dtype) -> Tensor:
        """The `numel` values of type `kind`, on the host, that `encode` gave `message` and `lengths` for."""
        planes_wn = np.empty((len(lengths), numel), dtype=np.uint8)
        coded, begin = message.cpu().numpy().data, 0
        for plane, length in zip(planes_wn, lengths, strict=True):
            part = coded[begin : begin + length]
            whole = part if length == numel else self._decompressor.decompress(part, max_output_size=numel)
            plane[:] = np.frombuffer(whole, dtype=np.uint8)
            begin += length
        return torch.from_numpy(np.ascontiguousarray(planes_wn.T).reshape(-1)).view(kind)
