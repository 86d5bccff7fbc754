"""A workspace for every module of tests that trains for real."""

from __future__ import annotations

import pytest

from tests.fixtures.workspace import Workspace


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))
