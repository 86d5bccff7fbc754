"""Methods from outside this repository, beside the built-in ones wherever those are.

A distribution names a module as its entry point `edgc.methods`, or `EDGC_METHODS=FOLDER:FOLDER` names folders. The
aggregators, policies and synchronisations that a module has are registered under the names that their settings say;
YAML files of methods lie in the folder, or below the module's own where that is a package.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from edgc.core.aggregators import AGGREGATORS, CONTROLS
from edgc.core.aggregators.aggregator import Aggregator, AggregatorSettings
from edgc.core.base.errors import UserError
from edgc.core.policies import POLICIES
from edgc.core.policies.policy import Policy, PolicySettings
from edgc.core.settings.reading import BROKEN, OUTSIDE, SHIPPED
from edgc.core.synchronisation import SYNCHRONISATIONS
from edgc.core.synchronisation.synchronisation import Synchronisation, SynchronisationSettings

GROUP, VARIABLE = "edgc.methods", "EDGC_METHODS"
#: By the word for a part: its contract, that of its settings, and the registry.
CONTRACTS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "aggregator": (Aggregator, AggregatorSettings, AGGREGATORS),
    "policy": (Policy, PolicySettings, POLICIES),
    "synchronisation": (Synchronisation, SynchronisationSettings, SYNCHRONISATIONS),
}
NOT_METHODS = ("test_", "conftest", "setup")  #: how names of a folder's modules begin that are not imported


@dataclass(frozen=True)
class Outside:
    """What one package or folder brings; nothing of it if `broken` says why."""

    name: str  #: the distribution's, or the folder as `EDGC_METHODS` has it
    version: str  #: of a folder, of what its files hold
    parts: Mapping[str, Mapping[str, type]] = field(default_factory=dict)  #: word for a part → name → class
    methods: Mapping[str, Path] = field(default_factory=dict)
    broken: str = ""


#: All that was found, in the order in which it was registered: packages, then folders.
FOUND: list[Outside] = []


def register() -> None:
    """Add what there is to the registries, before settings are made of them. What is broken is left out, and said."""
    for point in entry_points(group=GROUP):
        dist = point.dist
        _add(dist.name if dist else point.name, partial(_of_package, point), dist.version if dist else "")
    for at, name in enumerate(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))):
        folder = Path(name).resolve()
        _add(name, lambda at=at, folder=folder: ([*_modules(folder, at)], [folder]))


def _add(name: str, look: Any, version: str = "") -> None:
    """`look()` gives modules and folders. Without a version it is what the folder's files hold."""
    try:
        modules, folders = look()
        version = version or "".join(map(_digest, folders))
        parts = {word: dict(_kinds(modules, word)) for word in CONTRACTS}
        methods = _methods(folders)
    except (Exception, SystemExit) as error:
        why = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        FOUND.append(Outside(name, version, broken=why))
        BROKEN.append(f"methods of {name} are left out: {why}")
        warnings.warn(BROKEN[-1], stacklevel=2)
        return
    FOUND.append(Outside(name, version, parts, methods))
    OUTSIDE.setdefault("methods", {}).update(methods)
    for word, (_, _, registry) in CONTRACTS.items():
        registry.update(parts[word])


def _of_package(point: EntryPoint) -> tuple[list[ModuleType], list[Path]]:
    module = point.load()
    if not isinstance(module, ModuleType):
        raise UserError(f"entry point {point.name} = {point.value} is a {type(module).__name__}; name a module")
    return [module], [Path(folder) for folder in getattr(module, "__path__", ())]


def _modules(folder: Path, at: int) -> Iterable[ModuleType]:
    """A folder's modules, as those of a package: they may import each other by `from .other import …`."""
    if not folder.is_dir():
        raise UserError(f"{VARIABLE}: no folder {folder}")
    package = ModuleType(f"edgc_methods_{at}")
    package.__path__ = [str(folder)]
    sys.modules[package.__name__] = package
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith((*NOT_METHODS, "__", ".")):
            yield importlib.import_module(f"{package.__name__}.{path.stem}")


def _kinds(modules: Iterable[ModuleType], word: str) -> Iterable[tuple[str, type]]:
    """By name: the classes of one kind that modules have and that are not built in."""
    contract, _, registry = CONTRACTS[word]
    found: dict[str, type] = {}
    for kind in (each for module in modules for each in vars(module).values()):
        own = isinstance(kind, type) and issubclass(kind, contract) and not kind.__module__.startswith("edgc.")
        if not own or inspect.isabstract(kind) or kind in registry.values():
            continue
        name = _name(kind, word)
        others = {**registry, **(CONTROLS if word == "aggregator" else {}), **found}
        if others.get(name, kind) is not kind:
            owner = others[name].__module__
            whose = "a built-in one's" if owner.startswith("edgc.") else f"that of one in {owner}"
            raise UserError(f"{word} {name} ({kind.__name__}): the name is {whose}; choose another")
        found[name] = kind
    return found.items()


def _name(kind: Any, word: str) -> str:
    """What its settings call it. Raises `UserError` if it lacks what the contract asks of a class."""
    contract, settings, _ = CONTRACTS[word]
    own = getattr(kind, "Settings", None)
    if not (isinstance(own, type) and issubclass(own, settings)):
        raise UserError(f"{word} {kind.__name__}: Settings must be a subclass of {settings.__name__}")
    for having, of in ((kind, contract), (own, settings)):
        asked = [name for name, what in inspect.get_annotations(of).items() if str(what).startswith("ClassVar")]
        if missing := [name for name in asked if not hasattr(having, name)]:
            raise UserError(f"{word} {kind.__name__}: {having.__name__} has no {missing[0]}; see {of.__module__}")
    names = get_args(own.model_fields["name"].annotation) if "name" in own.model_fields else ()  # type: ignore[attr-defined]
    if len(names) != 1:
        raise UserError(f'{word} {kind.__name__}: its settings need name: Literal["…"]')
    return names[0]


def _methods(folders: Iterable[Path]) -> dict[str, Path]:
    """The YAML files at any depth, by name."""
    shipped = {path.stem: path for path in (SHIPPED / "methods").rglob("*.yaml")} | OUTSIDE.get("methods", {})
    found: dict[str, Path] = {}
    for path in sorted(path for folder in folders for path in _files(folder, ".yaml")):
        if there := (shipped | found).get(path.stem):
            whose = "a built-in one's" if there.is_relative_to(SHIPPED) else f"that of {there}"
            raise UserError(f"method {path.stem} ({path}): the name is {whose}; choose another")
        found[path.stem] = path
    return found


def _files(folder: Path, *suffixes: str) -> Iterable[Path]:
    """At any depth, without an editor's hidden ones."""
    return (p for p in folder.rglob("*") if p.suffix in suffixes and p.is_file() and not p.name.startswith("."))


def _digest(folder: Path) -> str:
    """Twelve digits of a SHA-256 over what a folder's files hold."""
    files = sorted(_files(folder, ".py", ".yaml"))
    return sha256(b"\0".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:12]
