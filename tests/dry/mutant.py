"""Runs each fault's ranks, in processes that are forked when torch and megatron are loaded: `python -m … FOLDER`."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from tests.dry.faults import ALL, FAULTS, Fault

ROOT = Path(__file__).parents[2]
AT_ONCE = 4  # processes


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with a fault in it, and never from a compiled file."""

    def __init__(self, fault: Fault, name: str, path: str) -> None:
        super().__init__(name, path)
        self._fault = fault

    def get_code(self, fullname: str) -> Any:
        path = Path(self.get_filename(fullname))
        source = path.read_text(encoding="utf-8")
        assert source.count(self._fault.old) >= 1, f"{self._fault.file} has no {self._fault.old!r}"
        return compile(source.replace(self._fault.old, self._fault.new, 1), str(path), "exec")


class _Finder(MetaPathFinder):
    def __init__(self, fault: Fault) -> None:
        self._fault, self.found = fault, False
        self._module = "edgc." + fault.file.removesuffix(".py").replace("/", ".")

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if fullname != self._module:
            return None
        self.found = True
        file = str(ROOT / "edgc" / self._fault.file)
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(self._fault, fullname, file))


def run(fault: Fault | None, spec: dict[str, Any], folder: Path, rank: int) -> None:
    """One rank of a faulty product."""
    finder = None
    if fault is not None:
        sys.meta_path.insert(0, finder := _Finder(fault))
    from edgc.suite.config import RunSpec
    from edgc.tools.dry.job import train
    from edgc.tools.dry.stand_in import StandIn

    loaded = RunSpec.model_validate(spec)
    stands_for = {0: 0, 1: 0, 2: 2, 3: 2} | {each: each for each in (fault.ranks if fault else ALL)}
    stand_in = StandIn(loaded.cluster, "H100", rank)
    stand_in.install()
    train(stand_in, loaded, folder, stands_for, fault.resumes if fault else False)
    assert finder is None or finder.found, "the module with the fault was not loaded anew"


def main(folder: Path) -> None:
    """Every fault in `folder/N`, and none in `folder/none`; specs lie there as `spec.json`."""
    import torch._dynamo  # noqa: F401  fake tensors load it

    import edgc.core.ops.lowrank.triton  # and with it Triton
    import edgc.suite.backends.megatron  # noqa: F401

    for name in [name for name in sys.modules if name == "edgc" or name.startswith("edgc.")]:
        del sys.modules[name]
    running: set[int] = set()
    for name, fault in [("none", None), *((str(i), fault) for i, fault in enumerate(FAULTS))]:
        spec = json.loads((folder / name / "spec.json").read_text())
        for rank in fault.ranks if fault else ALL:
            running.add(_fork(fault, spec, folder / name, rank))
        while len(running) >= AT_ONCE:
            running.discard(os.wait()[0])
    while running:
        running.discard(os.wait()[0])


def _fork(fault: Fault | None, spec: dict[str, Any], folder: Path, rank: int) -> int:
    if pid := os.fork():
        return pid
    with (folder / f"rank-{rank}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        run(fault, spec, folder, rank)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
