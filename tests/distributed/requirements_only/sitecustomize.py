"""On PYTHONPATH: a process finds the standard library and the packages that ONLY names, as if no others were there."""

from __future__ import annotations

import os
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from typing import Any

FOUND = {*sys.stdlib_module_names, *os.environ["ONLY"].split()}


class Only(PathFinder):
    """Python's own finder, blind to all other packages."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        return super().find_spec(fullname, path, target) if top in FOUND or top.startswith("_sysconfig") else None


sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Only]  # type: ignore[list-item]
