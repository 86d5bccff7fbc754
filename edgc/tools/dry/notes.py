"""What one rank did on a device without data, in the order in which it did it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgc.tools.dry.compilation import Source
    from edgc.tools.dry.traffic import Traffic

PACKAGES = Path(__file__).parents[3]
HERE = str(Path(__file__).parent)


class Refused(RuntimeError):
    """Something that a GPU, NCCL or Triton would refuse, or do wrong in silence. The message begins with the place."""


@dataclass(frozen=True)
class When:
    """Where in the run: 1-based step (0: before the first), region of the step (None: between steps), file and line."""

    step: int
    region: str | None
    place: str


@dataclass(frozen=True)
class Launch:
    """A Triton kernel's launch. `key`: what a compiled kernel is found by; `compiles`: none was there yet.

    traffic: what it moves and multiplies, by the kernel's closed form. source: with `compiles`, of what it is.
    """

    kernel: str
    grid: tuple[int, ...]
    key: str
    compiles: bool
    when: When
    traffic: Traffic
    source: Source | None


@dataclass(frozen=True)
class Collective:
    """One call of a process group, by `rank`. `group`: its global ranks; `peer`: the other rank of a send or receive,
    or the source of a broadcast.

    numel: elements this rank hands in or, for a receive, gets; `splits`: of an uneven exchange. `batch`: sends and
    receives of one batch have its number. `first`: the group's first use, where NCCL connects.
    """

    operation: str
    rank: int
    group: tuple[int, ...]
    numel: int
    bytes: int
    dtype: str
    reduction: str | None
    peer: int | None
    splits: tuple[tuple[int, ...], ...] | None
    batch: int | None
    first: bool
    when: When


@dataclass(frozen=True)
class HostWait:
    """The host waited for the device: a value was read, or it synchronised."""

    what: str
    when: When


@dataclass
class Notes:
    """All of it, and what is known at the moment."""

    launches: list[Launch] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    waits: list[HostWait] = field(default_factory=list)
    step: int = 0
    region: str | None = None

    def clear(self, step: int) -> None:
        """Another run begins, after `step`."""
        self.launches, self.collectives, self.waits, self.step, self.region = [], [], [], step, None

    def now(self) -> When:
        """Where the run is."""
        return When(self.step, self.region, place())

    def refuse(self, why: str) -> Refused:
        """The error to raise for something that would not work."""
        return Refused(f"{place()}: {why}")

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {name: [asdict(one) for one in getattr(self, name)] for name in ("launches", "collectives", "waits")}


#: They pass every collective on: who called them says more.
PASSES_ON = {"edgc/core/comm/communicator.py", "edgc/core/comm/torch_group.py"}


def place() -> str:
    """File and line of the call: the product's innermost that asked for it; else megatron's; else anybody's."""
    return innermost(list(_frames()), ("edgc/", "megatron/core/", ""))


def innermost(frames: Iterable[tuple[str, int]], packages: Sequence[str]) -> str:
    """File and line of the first frame (they begin with the innermost) in the first package that has one."""
    telling = [(name, line) for name, line in frames if name not in PASSES_ON]
    for package in packages:
        for name, line in telling:
            if name.startswith(package):
                return f"{name}:{line}"
    return "?:0"


def _frames() -> Iterator[tuple[str, int]]:
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        if not (file := frame.f_code.co_filename).startswith(HERE):
            yield shortened(file), line


def shortened(file: str) -> str:
    """A file's name from its package's folder on."""
    for root in ("/edgc/", "/megatron/core/", "/torch/"):
        before, found, after = file.rpartition(root)
        if found and (root != "/edgc/" or before == str(PACKAGES)):
            return found[1:] + after
    return file
