"""Tables of a launch."""

from __future__ import annotations

import torch

from edgc.core.ops.kernel_launch import table, tiles


def test_tables_do_not_depend_on_a_users_default_device() -> None:
    host = torch.device("cpu")
    with torch.device("meta"):
        assert table([(91, 92, 93)], host).tolist() == [[91, 92, 93]]
        assert tiles([2, 0, 3], host).tolist() == [[0, 0], [0, 1], [2, 0], [2, 1], [2, 2]]
