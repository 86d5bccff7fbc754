"""How chosen elements travel: what is read is what was written, and how many bytes that takes."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.sparse_code import Index, SparseCode, Values
from edgc.core.ops.select import Selection

NUMELS, KS = (5000, 1, 9000, 300), (130, 1, 64, 33)


def selections(kind: torch.dtype = torch.float32) -> list[Selection]:
    """Of each pool, at random and in no order; the last element of the first pool too."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for numel, k in zip(NUMELS, KS, strict=True):
        places = torch.randperm(numel, generator=generator)[:k]
        found.append(Selection(torch.randn(k, generator=generator, dtype=torch.float64).to(kind), places))
    found[0].indices[found[0].indices == NUMELS[0] - 1] = found[0].indices[0]
    found[0].indices[0] = NUMELS[0] - 1
    return found


def spread(found: list[Selection]) -> list[Tensor]:
    """The tensors that selections stand for."""
    whole = [torch.zeros(numel, dtype=s.values.dtype) for numel, s in zip(NUMELS, found, strict=True)]
    for tensor, selection in zip(whole, found, strict=True):
        tensor[selection.indices] = selection.values
    return whole


def read(code: SparseCode, message: Tensor, kind: torch.dtype) -> list[Selection]:
    values, places = code.decode(torch.stack([message.flip(0), message])[1:], kind)
    return [Selection(v, p) for v, p in zip(values[0].split(KS), places[0].split(KS), strict=True)]


@pytest.mark.parametrize("index", get_args(Index))
@pytest.mark.parametrize("values", get_args(Values))
@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)
def test_what_is_read_is_what_was_said_to_be_written(index: Index, values: Values, kind: torch.dtype) -> None:
    code = SparseCode(NUMELS, KS, index, values, kind.itemsize)
    message, sent = code.encode(selections(kind))
    assert message.dtype is torch.uint8
    assert len(message) == code.message_bytes
    for told, decoded in zip(spread(sent), spread(read(code, message, kind)), strict=True):
        assert torch.equal(told, decoded)


@pytest.mark.parametrize("values", get_args(Values))
def test_rounding_is_of_its_bits(values: Values) -> None:
    """Relative errors of normal values: bf16 to 2⁻⁸ each; 8 and 4 bits to half a step of the largest of 64."""
    code = SparseCode(NUMELS, KS, "smallest", values)
    exact, (_, sent) = spread(selections()), code.encode(selections())
    off = max(float((a - b).abs().max()) for a, b in zip(exact, spread(sent), strict=True))
    largest = max(float(a.abs().max()) for a in exact)
    limits = {"fp32": 0.0, "bf16": largest / 256, "int8": largest / 250, "int4": largest / 13.9, "stat2": largest}
    assert off <= limits[values]


def test_two_bits_keep_the_mean_and_what_is_large_and_small() -> None:
    """Bins of 1.5 σ around the mean, decoded to their means: by hand for ten values."""
    values = torch.tensor([-10.0, -1, -1, -1, -1, 1, 1, 1, 1, 12])
    code = SparseCode((10,), (10,), "bitmap", "stat2")
    _, (sent,) = code.encode([Selection(values, torch.arange(10))])
    # mean 0.2, σ 4.96: below −7.2 | to 0.2 | to 7.6 | above
    assert torch.allclose(sent.values, values)
    values[1] = -3
    _, (sent,) = code.encode([Selection(values, torch.arange(10))])
    assert torch.allclose(sent.values[1:5], torch.full((4,), -1.5))


@pytest.mark.parametrize(
    ("numel", "k", "where", "size"),
    [
        (10_000, 1, "int32", 4),  # 12 bits have three counts of two bytes beside them
        (10_000, 4, "blocks", 2 * 3 + 6),
        (100_000, 1000, "blocks", 2 * 25 + 1500),
        (100_000, 9000, "bitmap", 12_500),
        (100_000, 30_000, "bitmap", 12_500),
        (10_000_000, 3, "int32", 12),
    ],
)
def test_smallest_is_smallest(numel: int, k: int, where: str, size: int) -> None:
    code = SparseCode((numel,), (k,), "smallest", "fp32")
    assert (code.where, code.message_bytes) == (where, size + 4 * k)


def test_more_elements_than_an_int32_counts_travel_otherwise() -> None:
    assert SparseCode((2**31, 5), (1, 1), "smallest", "fp32").where == "blocks"
