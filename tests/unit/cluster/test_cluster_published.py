"""The cluster model against throughput that megatron's authors measured on up to 3072 GPUs."""

import pytest

from edgc.suite.config import Calibration, load
from tests.fixtures.megatron_table import fitted_efficiency, megatron_table


@pytest.mark.tier("all")
def test_every_row_is_within_ten_percent_with_one_fitted_constant() -> None:
    a100 = load(Calibration, "a100")
    fitted = fitted_efficiency(a100)
    table = megatron_table(a100.model_copy(update={"gemm_efficiency": fitted}))
    assert len(table) == 10
    assert table["error"].abs().max() < 0.10
    assert a100.gemm_efficiency == pytest.approx(fitted, abs=0.02), "the shipped file has it"
