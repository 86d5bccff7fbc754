"""docs/api.md lists what is public: all of it, and nothing that is not there."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pkgutil import resolve_name

import pytest
import yaml

import edgc
from edgc.hooks.any_loop import LoopExchange
from tests.fixtures.pages import PAGES, ROOT

PAGE = PAGES["api.md"]
NAMES = set(re.findall(r"`(edgc\.[\w.]+)`", PAGE))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_on_the_page_is_there(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    import_module(module)
    resolve_name(f"{module}:{attribute}")


def test_every_public_name_is_on_the_page() -> None:
    modules = [import_module(name) for name in ("edgc", "edgc.torch_ddp", "edgc.fsdp", "edgc.local_steps")]
    assert {f"{module.__name__}.{name}" for module in modules for name in module.__all__} == NAMES


def test_the_page_lists_the_exchange_as_it_is() -> None:
    own = set(re.findall(r"self\.(\w+)[:,]? ", inspect.getsource(LoopExchange.__init__))) | set(vars(LoopExchange))
    public = {name for name in own if not name.startswith("_")}
    assert set(re.findall(r"^\| `exchange\.(\w+)` \|", PAGE, re.MULTILINE)) == public


def test_signatures_are_those_of_the_functions() -> None:
    for name, function, arguments in re.findall(r"^(edgc\.\w+)\.(compress|wrap)\((.*)\)$", PAGE, re.MULTILINE):
        printed = [word.split("=")[0].lstrip("*") for word in arguments.split(", ") if word != "*"]
        there = list(inspect.signature(getattr(import_module(name), function)).parameters)
        assert printed[1:] == there[1:], name


def test_contracts_are_files() -> None:
    paths = re.findall(r"`(edgc/[\w/]+\.py)`", PAGE)
    assert len(paths) == 3
    assert all((ROOT / path).is_file() for path in paths)


def test_there_is_one_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    (newest, *_) = re.findall(r"^## ([\d.]+)$", PAGES["changelog.md"], re.MULTILINE)
    assert cited == newest == edgc.__version__
