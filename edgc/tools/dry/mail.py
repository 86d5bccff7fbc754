"""Python objects that ranks tell each other, between processes that stand for them. Never data of a step."""

from __future__ import annotations

import hashlib
import pickle
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgc.core.base.files import atomic_open

SECONDS = 600.0  #: a process that imports torch beside others on a slow machine


class Mail:
    """A folder through which processes exchange objects; `stands_for`: by rank, the rank whose process answers."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def begin(self, folder: Path, stands_for: Mapping[int, int]) -> None:
        """Exchange by another folder from now on."""
        self._folder, self._stands_for = folder, stands_for
        self._sent: Counter[str] = Counter()
        folder.mkdir(parents=True, exist_ok=True)

    def fail(self) -> None:
        """Let nobody wait for this rank."""
        (self._folder / "failed").touch()

    def exchange(self, group: Sequence[int], own: Any) -> list[Any]:
        """Everybody's object, in the order of the group."""
        key = hashlib.sha256(repr(sorted(group)).encode()).hexdigest()[:12]
        self._sent[key] += 1
        folder = self._folder / f"{key}-{self._sent[key]}"
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_open(folder / str(self._rank), "wb") as stream:
            pickle.dump(own, stream)
        return [
            own if self._stands_for[rank] == self._rank else self._wait(folder, self._stands_for[rank])
            for rank in group
        ]

    def _wait(self, folder: Path, rank: int) -> Any:
        path = folder / str(rank)
        deadline = time.monotonic() + SECONDS
        while not path.exists():
            if (self._folder / "failed").exists() or time.monotonic() > deadline:
                raise RuntimeError(f"rank {rank} does not answer: it failed, or it does not make this call")
            time.sleep(0.01)
        return pickle.loads(path.read_bytes())
