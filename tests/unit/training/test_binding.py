"""Cores of a process: shared evenly, never between processes where there are enough."""

from collections import Counter

import pytest

from edgc.suite.training.worker import share


@pytest.mark.parametrize(("cores", "processes"), [(2, 4), (3, 4), (4, 4), (7, 2), (64, 8), (1, 5)])
def test_cores_are_shared_evenly(cores: int, processes: int) -> None:
    numbers = list(range(10, 10 + cores))
    shares = [share(numbers, processes, index) for index in range(processes)]
    users = Counter(core for own in shares for core in own)
    assert set(users) <= set(numbers)
    assert len({len(own) for own in shares}) == 1, "all have the same number"
    if cores >= processes:
        assert max(users.values()) == 1
        assert len(users) > cores - processes, "fewer idle than would make one more for each"
    else:
        assert set(users) == set(numbers)
        assert max(users.values()) - min(users.values()) <= 1
