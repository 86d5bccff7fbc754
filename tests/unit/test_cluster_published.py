"""The cluster model against throughput that megatron's authors measured on up to 3072 GPUs."""

import pytest

from edgc.cluster.published import fitted_efficiency, megatron_table, sc21
from edgc.config import Calibration, load


def test_every_row_is_within_ten_percent_with_one_fitted_constant() -> None:
    table = sc21()
    assert len(table) == 10
    assert table["error"].abs().max() < 0.10


def test_the_shipped_a100_has_the_fitted_constant() -> None:
    a100 = load(Calibration, "a100")
    assert a100.gemm_efficiency == pytest.approx(fitted_efficiency(a100), abs=0.01)
    assert megatron_table(a100)["error"].abs().max() < 0.10
