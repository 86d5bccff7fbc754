"""What every method's aggregator gives with Triton's kernels, against torch on a CPU."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from implementation import DEVICE, TRITON

from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.ops import backend
from edgc.suite.config import Method, available, load
from tests.fixtures.exchanged import exchanged

pytestmark = pytest.mark.skipif(not TRITON, reason="compares with Triton's kernels: TRITON_INTERPRET=1")

CONFIGS = Path(__file__).parents[2] / "configs"
METHODS = {
    method.aggregator.model_dump_json(): name  # one of those that differ in their policy alone
    for name in available(Method, CONFIGS)
    if not (method := load(Method, name, CONFIGS)).control
}
SIZE = 3
#: Of what is quantised after a product: where that comes out a rounding apart, a code may be the next one.
TOLERANCE = {"powersgd_8_8": 2e-2, "powersgd_8_4": 2e-2, "powersgd_4_4": 2e-2, "ramp": 2e-2, "ramp_local": 2e-2}


@pytest.fixture(autouse=True)
def _ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch loads its solvers for a GPU when first used, which two threads must not do; the interpreter has one
    language for all threads."""
    if DEVICE != "cpu":
        torch.linalg.inv(torch.eye(1, device=DEVICE))
    else:
        from triton.runtime.interpreter import GridExecutor

        launch, alone = GridExecutor.__call__, threading.Lock()

        def one(executor: GridExecutor, *arguments: object, **options: object) -> None:
            with alone:
                launch(executor, *arguments, **options)

        monkeypatch.setattr(GridExecutor, "__call__", one)


@pytest.mark.parametrize("name", METHODS.values())
def test_averages_and_bytes_are_those_of_torch(name: str) -> None:
    method = load(Method, name, CONFIGS)
    with torch.device("cpu"):
        backend.choose("torch", "cpu")
        expected = run_ranks(SIZE, lambda comm: exchanged(comm, method))
        backend.choose("triton" if DEVICE == "cpu" else "auto", DEVICE)
        found = run_ranks(SIZE, lambda comm: exchanged(comm, method, DEVICE))
    for (averages, *charged), (averages_of_torch, *charged_by_torch) in zip(found, expected, strict=True):
        assert charged == charged_by_torch
        for average, of_torch, first in zip(averages, averages_of_torch, found[0][0], strict=True):
            assert torch.equal(average, first), "ranks differ"
            assert float((average - of_torch).norm()) <= TOLERANCE.get(name, 1e-4) * float(of_torch.norm())


@pytest.mark.skipif(DEVICE == "cpu", reason="the default device is the CPU already: EDGC_TEST_DEVICE=cuda")
@pytest.mark.parametrize("name", ["edgc", "int4", "powersgd", "topk"])
def test_a_users_default_device_changes_nothing(name: str) -> None:
    method = load(Method, name, CONFIGS)

    def with_default(comm: LoopbackCommunicator) -> tuple[list[torch.Tensor], int, float]:
        with torch.device(DEVICE):
            return exchanged(comm, method, DEVICE)

    with torch.device("cpu"):
        expected = run_ranks(SIZE, lambda comm: exchanged(comm, method, DEVICE))
    for (averages, *_), (averages_without, *_) in zip(run_ranks(SIZE, with_default), expected, strict=True):
        assert all(map(torch.equal, averages, averages_without))
