"""The same tests for every implementation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from implementation import DEVICE, TRITON

from edgc.core.ops import backend


@pytest.fixture(autouse=True)
def _implementation() -> Iterator[None]:
    with torch.device(DEVICE):
        backend.choose("triton" if TRITON else "auto", DEVICE)
        yield
    backend.choose("auto", DEVICE)


@pytest.fixture(autouse=True)
def _known_precision(request: pytest.FixtureRequest) -> None:
    case = getattr(request.node, "callspec", None)
    if TRITON and case is not None and case.params.get("dtype") == torch.float64:
        pytest.skip("the kernels compute in float32")
