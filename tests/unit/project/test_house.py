"""The house: the name of a module or class means one thing. That imports go down is for `make lint`."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

EDGC = Path(__file__).parents[3] / "edgc"
#: What is there several times by design: an operation's two implementations, and the hook under the name that users
#: import it by.
SHARED = {"__init__", "reference", "triton", "torch_ddp"}


def rooms() -> list[Path]:
    return [path for path in EDGC.iterdir() if (path / "__init__.py").is_file()]


def test_only_the_command_line_knows_the_tools() -> None:
    knows = {
        path.relative_to(EDGC).parts[0]
        for path in EDGC.rglob("*.py")
        if "edgc.tools" in path.read_text(encoding="utf-8")
    }
    assert knows == {"tools", "cli"}


def test_no_two_modules_of_one_name() -> None:
    places = defaultdict(list)
    for path in EDGC.rglob("*.py"):
        places[path.stem].append(path.relative_to(EDGC).as_posix())
    assert not {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED}


def test_no_two_public_classes_of_one_name() -> None:
    places = defaultdict(list)
    for path in EDGC.rglob("*.py"):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(path.relative_to(EDGC).as_posix())
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_unit_tests_are_in_the_rooms_that_they_test() -> None:
    """Or in the part of a room. Beside them is only `project`: what is true of the repository as a whole."""
    parts = {part.name for room in rooms() for part in (room, *room.iterdir()) if part.is_dir()}
    folders = {path.name for path in Path(__file__).parents[1].iterdir() if any(path.glob("test_*.py"))}
    assert folders <= parts | {"project"}
    assert not [*Path(__file__).parents[1].glob("test_*.py")]
