"""What a method is, where its algorithm stands, and what was measured of it: `edgc methods NAME`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgc.core.policies import POLICIES
from edgc.core.settings.method import MECHANISMS, Method
from edgc.core.synchronisation import SYNCHRONISATIONS
from edgc.report.gaps import published_gaps

ROOT = Path(__file__).parents[2]
#: Functions in which the algorithm of each part stands: the first that its class, or one that it is made from, has.
ALGORITHM = {
    "synchronisation": ("update", "after_optimizer", "before_optimizer", "bucket"),
    "aggregator": ("exchange_coded", "exchange_factors", "exchange"),
    "policy": ("decide",),
}
CONTRACTS = {"aggregator", "amounts", "policy", "synchronisation", "workload"}  # the same for all methods


def about(method: Method, published: Path) -> dict[str, Any]:
    """Source, settings, parts and highest published loss gap (nats) of a method, as `edgc methods NAME` shows them.

    The gap is the one whose interval ends highest; one that decided whether the loss is kept goes before others. Of
    each part its class and its module's first line; `… at`: FILE:LINE of its algorithm; `… files`: its own and those
    of the exchange that it imports, with their lines. `published`: the folder of published results.
    """
    parts = {
        "synchronisation": SYNCHRONISATIONS[method.synchronisation.name],
        "aggregator": MECHANISMS[method.aggregator.name],
        "policy": POLICIES[method.policy.name],
    }
    shown: dict[str, Any] = {
        "name": method.name,
        "title": method.title,
        "source": method.source,
        "summary": method.summary,
        "settings": [*_settings(method.model_dump(mode="json", exclude_unset=True))],
    }
    for part, kind in parts.items():
        module = Path(inspect.getfile(kind))
        first = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        shown |= {part: f"{kind.__name__}: {first}", f"{part} at": _algorithm(part, kind)}
        sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _files(module)}
        shown[f"{part} files"] = [f"{_shown(path)} ({lines} lines)" for path, lines in sizes.items()]
    gap = published_gaps(published).get(method.name)
    told = f"{gap.words}; all: edgc evidence {method.name}" if gap else "none is published"
    aggregator = parts["aggregator"]
    return shown | {
        "payload": aggregator.payload_formula,
        "state": aggregator.state_size,
        "highest gap (nats)": told,
    }


def _settings(of: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """What its file sets of its parts, as `compress(…, policy={"rank": 8})` changes it."""
    for key, value in of.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{within}{key}.")
        elif within:
            yield f"{within}{key}: {value}"


def _algorithm(part: str, kind: type) -> str:
    """Of the class nearest to `kind` that has one of the functions, but is not the contract; else of `kind` itself."""
    for owner in kind.__mro__:
        for name in ALGORITHM[part]:
            function = vars(owner).get(name)
            if inspect.isfunction(function) and Path(inspect.getfile(owner)).stem not in CONTRACTS:
                return f"{_shown(Path(function.__code__.co_filename))}:{function.__code__.co_firstlineno}"
    return f"{_shown(Path(inspect.getfile(kind)))}:{inspect.getsourcelines(kind)[1]}"


def _files(module: Path) -> list[Path]:
    """The module, and those beside it and of the operations that it imports."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    rooms = ("edgc.core.aggregators.", "edgc.core.ops.", "edgc.core.policies.", "edgc.core.synchronisation.")
    wanted = [name for name in names if name.startswith(rooms) and name.rpartition(".")[2] not in CONTRACTS]
    paths = [ROOT / Path(*name.split(".")) for name in dict.fromkeys(wanted)]
    return [module, *(path / "reference.py" if path.is_dir() else path.with_suffix(".py") for path in paths)]


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
