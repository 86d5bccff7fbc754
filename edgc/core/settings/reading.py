"""Reading the YAML files under configs/."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import Field

from edgc.core.base.errors import UserError
from edgc.core.base.settings import Settings, cut, merge, shown, validate

CONFIGS = Path("configs")  #: the current folder's
#: What comes with the package. In a checkout it is a link to the repository's configs/, in a wheel a copy.
SHIPPED = Path(str(files("edgc.core"))) / "configs"
OUTSIDE: dict[str, dict[str, Path]] = {}  #: files from outside, by folder and name (`edgc.core.settings.outside`)
BROKEN: list[str] = []  #: what is left out of them, and why


class Named(Settings):
    """What a file defines, `<name>.yaml` in `configs/<folder>` or in a folder there, or one of the file's `parts`."""

    folder: ClassVar[str]

    name: str = Field(pattern=r"^[A-Za-z0-9_.+-]+$", description="Its name, equal to the file's")

    @classmethod
    def handed_down(cls, inherited: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """Those of a base's values that concern what says `own` itself."""
        return inherited


N = TypeVar("N", bound=Named)


def available(kind: type[Named], configs: Path = CONFIGS) -> list[str]:
    """Names that can be loaded for `kind`, sorted."""
    return sorted(paths(kind, configs))


def paths(kind: type[Named], configs: Path = CONFIGS, wanted: str = "") -> dict[str, Path]:
    """By name: the file of all that can be loaded for `kind`, or of its parts of this name only.

    Raises `UserError` if a name stands twice. Without `configs`: the current folder's, those from outside, and those
    that come with the package and are not among them.
    """
    own = _below(kind, configs / kind.folder, wanted)
    if configs != CONFIGS:
        return own
    outside = OUTSIDE.get(kind.folder, {})
    for name in own.keys() & outside:
        raise UserError(f"{own[name]}: {outside[name]} has the same name, {name}, and is found by it; rename one")
    return _shipped(kind) | outside | own


@cache
def _shipped(kind: type[Named]) -> dict[str, Path]:
    return _below(kind, SHIPPED / kind.folder, "")


def _below(kind: type[Named], top: Path, wanted: str) -> dict[str, Path]:
    """Files below a folder, at any depth, and their parts."""
    found: dict[str, Path] = {}
    files = [Path(place, name) for place, _, names in os.walk(top) for name in names if name.endswith(".yaml")]
    parts = [(name, path) for path in files for name in _parts(path, wanted)] if "parts" in kind.model_fields else []
    for name, path in [*((path.stem, path) for path in files), *parts]:
        if name in found:
            raise UserError(f"{path}: {found[name]} has the same name, {name}, and is found by it; rename one")
        found[name] = path
    return found


def _parts(path: Path, wanted: str) -> Iterable[str]:
    """Names of a file's parts; none of a file that cannot be read, which is refused when it is loaded."""
    with contextlib.suppress(Exception):
        text = path.read_text(encoding="utf-8")
        if "parts:" in text and wanted in text:
            return _part_names(text)
    return ()


@cache
def _part_names(text: str) -> Iterable[str]:
    return [name for name in parse(text)["parts"] if isinstance(name, str)]


def load(kind: type[N], name: str, configs: Path = CONFIGS, wanted_by: str = "") -> N:
    """Read what has this name. Raises `UserError` if it is missing or not valid. `configs`: as in `paths`."""
    path = _place(kind, name, configs, f"{wanted_by}{kind.__name__.lower()} {shown(name)}")
    loaded = _read(kind, name, path, configs)
    if loaded.name != name:
        raise UserError(f"{path}: name is {shown(loaded.name)}, but must equal the file's, {name!r}")
    return loaded


def _place(kind: type[Named], name: str, configs: Path, wanted: str) -> Path:
    there = paths(kind, configs, name)
    if name not in there:
        missing = configs / kind.folder / f"{name}.yaml"
        every = ", ".join(available(kind, configs))
        raise UserError("; ".join([f"{wanted}: no file {cut(str(missing), 200)}", *BROKEN, f"there are: {every}"]))
    return there[name]


def read(kind: type[N], path: Path, configs: Path = CONFIGS) -> N:
    """Read a file that may lie anywhere. Raises `UserError` if it cannot be read or is not valid."""
    return _read(kind, path.stem, path, configs)


def _read(kind: type[N], name: str, path: Path, configs: Path) -> N:
    own, where = _own(name, path), str(path) if name == path.stem else f"{path}, {name}"
    if not isinstance(own.get("of"), str) or "of" not in kind.model_fields:
        return validate(kind, own, where)
    inherited = kind.handed_down(_inherited(kind, own["of"], path, configs, (name,)), own)
    return validate(kind, merge(inherited, own), f"{where} of {own['of']}")


def _own(name: str, path: Path) -> dict[str, Any]:
    """What a file says of this name itself: all, or what one of its parts is, which is `of` the file."""
    values = _values(path)
    if name == path.stem:
        return values
    part = values["parts"][name]
    if not isinstance(part, dict):
        raise UserError(f"{path}: parts.{name} = {shown(part)}: must be settings by name")
    return {"name": name, "of": path.stem} | part


def _inherited(kind: type[Named], of: str, path: Path, configs: Path, chain: tuple[str, ...]) -> dict[str, Any]:
    """All values of what `path` is `of`, with those of its own base; a file's parts are its own."""
    if of in chain:
        raise UserError(f"{path}: of {of!r}: {' of '.join((*chain, of))} never ends")
    found = _place(kind, of, configs, f"{path}: of = {shown(of)}")
    values = {key: value for key, value in _own(of, found).items() if key != "parts"}
    base = values.get("of")
    return merge(_inherited(kind, base, found, configs, (*chain, of)), values) if isinstance(base, str) else values


def parse(text: str) -> Any:
    """What a YAML text says. Raises what PyYAML's own reader raises, whose messages show the line.

    libyaml reads the same six times faster, where PyYAML has it. What it refuses is read again for the message.
    """
    for loader in LOADERS:
        with contextlib.suppress(Exception):
            return yaml.load(text, Loader=loader)
    return yaml.load(text, Loader=LOADERS[-1])


def _strict(loader: Any) -> Any:
    """A loader without what YAML 1.1 makes of a slip: the last of equal keys, 0100 as 64, 1:30 as 90, yes as true."""

    class Strict(loader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if twice := next((key for key in keys if keys.count(key) > 1 and key != "<<"), None):
                raise yaml.constructor.ConstructorError(None, None, f"{twice} stands twice", node.start_mark)
            return super().construct_mapping(node, deep)

    def number(self: Any, node: Any) -> Any:
        if not NUMBER.fullmatch(node.value):
            why = f"{cut(node.value, 50)} is no decimal number; if it is meant as text, quote it"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)
        return getattr(self, f"construct_yaml_{node.tag.rpartition(':')[2]}")(node)

    for kind in ("int", "float"):
        Strict.add_constructor(f"tag:yaml.org,2002:{kind}", number)
    Strict.yaml_implicit_resolvers = {
        first: [(tag, shape) for tag, shape in known if first in "tTfF" or not tag.endswith(":bool")]
        for first, known in loader.yaml_implicit_resolvers.items()
    }
    return Strict


NUMBER = re.compile(r"[-+]?(0|[1-9][0-9_]*|([0-9][0-9_]*\.[0-9_]*|\.[0-9]+)([eE][-+]?[0-9]+)?|\.(?i:inf|nan))")
LOADERS = [_strict(getattr(yaml, name)) for name in ("CSafeLoader", "SafeLoader") if hasattr(yaml, name)]


def _values(path: Path) -> dict[str, Any]:
    """What the file says, as plain values."""
    try:
        values = parse(path.read_text(encoding="utf-8"))
        _check_plain(values)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deep: {LEVELS} levels are allowed") from None
    except _NotPlain as error:
        raise UserError(f"{path}: {cut(str(error), 500)}") from None
    except Exception as error:  # YAMLError, and whatever else its reader raises: for no date, number, UTF-8 …
        raise UserError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        is_now = "empty" if values is None else f"a {type(values).__name__}"
        raise UserError(f"{path}: is {is_now}; must hold settings, lines of `name: value`")
    return values


LEVELS = 20  # the deepest setting is on the sixth
VALUES = 100_000  # aliases of aliases make a small file as large as they like
WHOLE = 2**63  # beyond it no integer fits into a seed, a tensor, or a frame
TINY, HUGE = 1e-100, 1e100  # beyond them what is computed of a number overflows
UNPRINTABLE = re.compile("[\0\ud800-\udfff]")


class _NotPlain(Exception):
    """What JSON could not say, or nobody could hold."""


def _check_plain(values: Any) -> None:
    """Raise `_NotPlain` unless all keys are text and all values are text, numbers, yes or no, null, lists, groups."""
    ahead = [(values, "", 0)]
    count = 0
    while ahead:
        value, place, level = ahead.pop()
        count += 1
        if level > LEVELS or count > VALUES:
            top = place.split(".")[0]
            raise _NotPlain(
                f"{top or 'settings'}: must not be deeper than {LEVELS} levels, over {VALUES} values or in itself"
            )
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise _NotPlain(f"{place or 'settings'}: key {shown(key)} must be text; put it into quotes")
            ahead += [(key, place, level) for key in value]
            ahead += [(each, f"{place}.{key}".lstrip("."), level + 1) for key, each in value.items()]
        elif isinstance(value, list):
            ahead += [(each, place, level + 1) for each in value]
        elif isinstance(value, int) and abs(value) >= WHOLE:
            raise _NotPlain(f"{place}: an integer must be below {WHOLE}")
        elif isinstance(value, float) and value and math.isfinite(value) and not TINY < abs(value) < HUGE:
            raise _NotPlain(f"{place} = {value}: a number other than 0 must be between {TINY} and {HUGE}")
        elif isinstance(value, str) and UNPRINTABLE.search(value):
            raise _NotPlain(f"{place}: text must be Unicode without NUL characters, but is {shown(value)}")
        elif not isinstance(value, str | int | float | None):
            raise _NotPlain(f"{place}: {shown(value)} is a {type(value).__name__}; if it is meant as text, quote it")
