"""Reading the YAML files under configs/."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml

from edgc.base.errors import UserError
from edgc.config.settings import Settings, merge, validate

CONFIGS = Path("configs")


class Named(Settings):
    """What a file of its own defines: `configs/<folder>/<name>.yaml`."""

    folder: ClassVar[str]

    name: str


N = TypeVar("N", bound=Named)


def available(kind: type[Named], configs: Path = CONFIGS) -> list[str]:
    """Names that can be loaded for `kind`, sorted."""
    return sorted(path.stem for path in (configs / kind.folder).glob("*.yaml"))


def load(kind: type[N], name: str, configs: Path = CONFIGS) -> N:
    """Read `configs/<folder>/<name>.yaml`. Raises `UserError` if it is missing or not valid."""
    path = configs / kind.folder / f"{name}.yaml"
    if not path.is_file():
        raise UserError(
            f"{kind.__name__.lower()} {name!r}: no file {path}; there are: {', '.join(available(kind, configs))}"
        )
    loaded = read(kind, path)
    if loaded.name != name:
        raise UserError(f"{path}: name is {loaded.name!r}, but must equal the file's, {name!r}")
    return loaded


def read(kind: type[N], path: Path) -> N:
    """Read a file that may lie anywhere. Raises `UserError` if it cannot be read or is not valid."""
    values = _values(path)
    if "of" in kind.model_fields:
        values = _inherited(values, path, (path.stem,))
    return validate(kind, values, str(path))


def _inherited(values: Any, path: Path, chain: tuple[str, ...]) -> Any:
    """The values laid over those of the file beside it that they are `of`, if they say so."""
    if not isinstance(values, dict) or not isinstance(values.get("of"), str):
        return values
    base = values["of"]
    if base in chain:
        raise UserError(f"{path}: of {base!r}: {' of '.join((*chain, base))} never ends")
    found = path.with_name(f"{base}.yaml")
    if not found.is_file():
        there = ", ".join(sorted(other.stem for other in path.parent.glob("*.yaml")))
        raise UserError(f"{path}: of = {base!r}: no file {found}; there are: {there}")
    inherited = _inherited(_values(found), path, (*chain, base))
    return merge(inherited, values) if isinstance(inherited, dict) else values


def _values(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
