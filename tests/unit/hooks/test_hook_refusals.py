"""What cannot be a DDP communication hook is refused in one line, before the model is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.config import Method, available, load
from edgc.torch_ddp import compress

METHODS = [load(Method, name) for name in available(Method)]
#: What the refusal says: why, and what to do.
SAID = {m.name: (m.synchronisation.name, "every_step") for m in METHODS if m.synchronisation.no_hook}  # type: ignore[attr-defined]
SAID["powersgd_budget"] = ("policy budget reads how long a step takes",)
SAID["torch_powersgd"] = ("is PyTorch's own hook",)


@pytest.mark.parametrize("name", SAID)
def test_a_method_that_is_no_hook_is_refused_in_one_line(name: str) -> None:
    model: Any = None
    with pytest.raises(UserError) as caught:
        compress(model, name, iterations=10)
    message = str(caught.value)
    assert "\n" not in message
    assert all(words in message for words in (f"method {name}", *SAID[name])), message
