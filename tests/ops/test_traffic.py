"""Bytes that the kernels load and store, counted in Triton's interpreter: the closed forms, and the least there can be.

`distinct` is counted in sectors, and includes the tables that tell programs about their tensors: see `SLACK`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from implementation import DEVICE, TRITON, normal

from edgc.core.aggregators.factor_means import Rotation
from edgc.core.ops.block_code import BlockCode
from edgc.core.ops.select import Pool
from edgc.tools.dry.traffic import FORMULAS, Traffic, traffic

pytestmark = pytest.mark.skipif(not TRITON or DEVICE != "cpu", reason="counts in the interpreter: TRITON_INTERPRET=1")

SHAPES = ((128, 192), (200, 96))  # of whole tiles, and not
RANKS = (4, 32, 64)
FP32, BF16 = torch.float32, torch.bfloat16


def launches(run: Callable[[], Any]) -> list[Any]:
    from interpreted_bytes import counted

    with counted() as found:
        run()
    return found


def slack(one: Any) -> int:
    """Bytes of its tables, and of a sector at both ends of its tensors."""
    rows = sum(8 * len(row) + 64 * 4 for table in one.launched.tables.values() for row in table)
    return 8 * one.launched.programs + rows + 64 * (1 + len(one.launched.sizes))


def as_formulas_say(one: Any) -> None:
    said = traffic(one.kernel, one.launched)
    assert (one.kernel, one.loads.requested, one.stores.requested) == (one.kernel, said.read, said.written)
    assert -64 <= one.loads.distinct - said.read_once <= slack(one), one.kernel
    assert -64 <= one.stores.distinct - said.written_once <= slack(one), one.kernel


def decode(m: int, n: int, r: int, grad: torch.dtype = FP32, feedback: bool = True, told: bool = False) -> list[Any]:
    from edgc.core.ops.lowrank import triton as kernels

    gradient, memory = normal(m, n, dtype=grad), normal(m, n) if feedback else None
    factors = [normal(m, r)], [normal(n, r)]
    own = (factors[0], [normal(n, r)]) if told else None
    return launches(lambda: kernels.decode(*factors, [gradient], [memory], own))


@pytest.mark.parametrize("rank", [*RANKS, 136])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_closed_forms_of_the_product(shape: tuple[int, int], rank: int) -> None:
    for one in (*decode(*shape, rank), *decode(*shape, rank, told=True)):
        as_formulas_say(one)


@pytest.mark.parametrize(("grad", "feedback"), [(FP32, False), (BF16, True), (BF16, False)], ids=str)
def test_closed_forms_in_other_precisions(grad: torch.dtype, feedback: bool) -> None:
    for one in decode(70, 130, 6, grad, feedback):
        as_formulas_say(one)


@pytest.mark.parametrize("rank", RANKS)
def test_the_memory_moves_every_element_once(rank: int) -> None:
    """Three passes over M, in fp32, and the factors: what any algorithm has to move."""
    m, n = 256, 128
    numel, factors = 4 * m * n, 4 * rank * (m + n)
    (one,) = decode(m, n, rank)
    assert 0 <= one.loads.distinct - numel - factors <= slack(one)
    assert 0 <= one.stores.distinct - 2 * numel <= slack(one)


def test_factors_are_asked_for_by_every_tile() -> None:
    """At rank 64, a tile of 64×64 asks for 2·64 rows of the factors, beside 3·64 of M, E and G: 5/3 in all."""
    m, n, r = 256, 256, 64
    (one,) = decode(m, n, r)
    tables = one.launched.programs * (8 + 7 * 8)
    asked = one.loads.requested + one.stores.requested - tables
    assert asked == 4 * 3 * m * n * 5 // 3


def test_closed_forms_of_the_other_kernels() -> None:
    from edgc.core.ops.block_code import triton as block_code
    from edgc.core.ops.moments import triton as moments
    from edgc.core.ops.orthonormalise import triton as orthonormalise
    from edgc.core.ops.select import triton as select

    def run() -> None:
        for rank in (4, 64, 128):
            orthonormalise.orthonormalise([normal(300, rank), normal(140, rank)])
        for stride in (1, 5):
            tensors = [normal(90, 100), normal(33)]
            moments.histogram(tensors, [stride] * 2, moments.moments(tensors, [stride] * 2))
        pools = [(normal(50, 100), 40), (normal(70), 5), (normal(3000), 7)]
        select.select([Pool(grad, None, k) for grad, k in pools])
        select.select([Pool(grad, torch.zeros_like(grad), k) for grad, k in pools])

        for turn in (None, Rotation(32)):
            block_code.encode(normal(2, 70 * 32), BlockCode(4, 32), turn)

    found = launches(run)
    assert {one.kernel for one in found} | {"decode_kernel"} == {*FORMULAS}
    for one in found:
        as_formulas_say(one)


def test_traffic_adds_up() -> None:
    assert Traffic(1, 2, 3, 4, 5) + Traffic(10, 20, 30, 40, 50) == Traffic(11, 22, 33, 44, 55)
