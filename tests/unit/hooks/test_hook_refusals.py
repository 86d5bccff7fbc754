"""What cannot be a DDP communication hook is refused in one line, before the model is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.config import Method, available, load
from edgc.torch_ddp import compress

CONFIGS = Path(__file__).parents[3] / "configs"
METHODS = [load(Method, name, CONFIGS) for name in available(Method, CONFIGS)]
NO_HOOKS = [method for method in METHODS if method.synchronisation.no_hook]  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", NO_HOOKS, ids=lambda method: method.name)
def test_a_method_that_is_no_hook_is_refused_in_one_line(method: Method) -> None:
    model: Any = None
    with pytest.raises(UserError) as caught:
        compress(model, method, iterations=10)
    message = str(caught.value)
    assert "\n" not in message
    assert method.name in message
    assert method.synchronisation.name in message  # type: ignore[attr-defined]
    assert "every_step" in message, "what to do"


def test_there_are_such_methods() -> None:
    known = {"delayed", "outer", "differences", "dion", "frozen_variance", "gossip", "sign", "paced"}
    assert {method.synchronisation.name for method in NO_HOOKS} == known  # type: ignore[attr-defined]


def test_a_policy_that_reads_how_long_steps_take_is_refused_in_one_line() -> None:
    model: Any = None
    with pytest.raises(UserError, match=r"method powersgd_budget: policy budget reads how long a step takes") as caught:
        compress(model, "powersgd_budget", iterations=10)
    assert "\n" not in str(caught.value)


def test_pytorchs_own_hook_is_refused_in_one_line() -> None:
    model: Any = None
    with pytest.raises(UserError, match="method torch_powersgd: is PyTorch's own hook") as caught:
        compress(model, "torch_powersgd", iterations=10)
    assert "\n" not in str(caught.value)
