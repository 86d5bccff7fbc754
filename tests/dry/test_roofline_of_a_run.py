"""Every launch of a dry run has its traffic and its place on a roofline, on three devices."""

from __future__ import annotations

import pandas as pd
import pytest

from edgc.tools.dry import compilation, roofline
from edgc.tools.dry.short import TOKENS
from tests.dry.conftest import Ran, run


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A rank of each stage."""
    return run(["powersgd"], tmp_path_factory.mktemp("roofline"), [0, 2], 1, "fp32", False)


@pytest.fixture(scope="module")
def frame(ran: Ran) -> pd.DataFrame:
    if not compilation.CUOBJDUMP.exists():
        pytest.skip("Triton came without cuobjdump")
    return roofline.roofline(ran.specs, ran.records)


def test_every_kernel_of_powersgd_is_there_on_three_devices(frame: pd.DataFrame) -> None:
    for device in ("V100", "A100", "H100"):
        kernels = {*frame[frame["device"] == device]["kernel"]}
        assert {"decode_kernel", "gram_kernel", "repair_kernel"} <= kernels


def test_a_launch_moves_the_matrices_of_its_stage(frame: pd.DataFrame, ran: Ran) -> None:
    """Decode writes E and G in fp32: of a layer's 12 h² elements, the embedding and the positions. Megatron pads the
    vocabulary to a multiple of 128."""
    model = ran.specs[0].model
    rows = -(-TOKENS // 128) * 128 + model.seq_length
    elements = 12 * model.hidden_size**2 + rows * model.hidden_size
    one = frame[(frame["kernel"] == "decode_kernel") & (frame["device"] == "H100") & (frame["stage"] == 0)]
    assert float((one["written_once_mbyte"] * one["launches"]).sum()) == pytest.approx(2 * 4 * elements / 1e6)


def test_nothing_spills_and_a_block_fits(frame: pd.DataFrame) -> None:
    assert (frame["spilled"] == 0).all()
    assert (frame["blocks"] >= 1).all()
    assert (frame["bound_us"] >= frame[["memory_us", "l2_us", "arithmetic_us"]].max(axis=1)).all()


def test_a_step_adds_its_launches_up(frame: pd.DataFrame) -> None:
    one = roofline.steps(frame).set_index(["stage", "device"]).loc[(0, "A100")]
    rows = frame[(frame["stage"] == 0) & (frame["device"] == "A100")]
    assert one["bound_ms"] == pytest.approx(float((rows["bound_us"] * rows["launches"]).sum()) / 1e3)
