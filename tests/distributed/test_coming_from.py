"""The differences of docs/coming-from.md: ours run, and PyTorch's beside them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.distributed.ranks import DDP, on_ranks
from tests.fixtures.pages import PAGES

pytestmark = pytest.mark.tier("all")
PAGE = PAGES["coming-from.md"]
PYTORCH = PAGE[PAGE.index("## PyTorch's hooks") : PAGE.index("## DeepSpeed")]
#: Of PyTorch's hooks: with what they end on a CPU, as the page says. Once one of them trains, PyTorch has mended it.
FAIL = {"batched_powerSGD_hook": "AssertionError", "quantization_pertensor_hook": "IndexError"}


def differences(text: str) -> list[tuple[str, str]]:
    """What was there, and what is in its place."""
    blocks = re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [tuple("\n".join(re.findall(rf"^\{sign}(.*)$", each, re.M)) for sign in "-+") for each in blocks]  # type: ignore[misc]


def run(code: str) -> dict[str, Any]:
    return on_ranks("coming_from.py", 2, code, needs=DDP)


def trained(code: str) -> dict[str, Any]:
    """What our side ends with: the ranks equal, the loss down."""
    found = run(code)
    assert found["equal"]
    assert found["step"] == len(found["losses"])
    assert found["losses"][-1] < 0.7 * found["losses"][0]
    return found


OTHERS = [new for _, new in differences(PAGE.replace(PYTORCH, ""))]


def method_of(code: str) -> str:
    return re.findall(r'(?:ddp|model|optimizer),\s+"(\w+)"', code)[0]


@pytest.mark.parametrize("new", OTHERS, ids=method_of)
def test_what_comes_in_trains(new: str) -> None:
    trained(new)


@pytest.mark.parametrize(("old", "new"), differences(PYTORCH), ids=lambda code: re.findall(r"\w+", code)[-1])
def test_pytorch_s_hook_and_ours_train_alike(old: str, new: str) -> None:
    hook, after = re.findall(r"\w+", old)[-1], trained(new)
    if hook in FAIL:
        with pytest.raises(AssertionError, match=FAIL[hook]):
            run(old)
        return
    before = run(old)
    assert before["equal"]
    assert after["losses"][-1] == pytest.approx(before["losses"][-1], rel=0.05)
    if hook == "bf16_compress_hook":
        assert after["parameters"] == before["parameters"]
