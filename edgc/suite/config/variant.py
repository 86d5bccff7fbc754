"""Methods that are another with changes, by name: an experiment's own, and those of several. configs/variants/."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from edgc.core.base.errors import UserError
from edgc.core.settings.reading import CONFIGS, Named, available, load


def _each_names_its_method(variants: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for name, changes in variants.items():
        if not isinstance(changes.get("of"), str) or "title" not in changes or "name" in changes:
            raise ValueError(f"variants.{name} needs `of`, a file in configs/methods, and a title; its name is {name}")
    return variants


ByName = Annotated[dict[str, dict[str, Any]], AfterValidator(_each_names_its_method)]


class Variants(Named):
    """Variants of methods that any experiment may name among its `methods` (configs/variants/)."""

    folder: ClassVar[str] = "variants"

    variants: ByName = Field(
        description="By a new name: the file in configs/methods that each is a variant `of`, its title, and what else "
        "differs, e.g. {powersgd_r8: {of: powersgd, title: PowerSGD r = 8, policy: {rank: 8}}}",
    )


def shared_variants(configs: Path = CONFIGS) -> dict[str, dict[str, Any]]:
    """All of them. Raises `UserError` if two files define one."""
    found: dict[str, dict[str, Any]] = {}
    for file in available(Variants, configs):
        variants = load(Variants, file, configs).variants
        if twice := sorted(found.keys() & variants):
            raise UserError(f"variants {file}: {twice[0]} is in another file there, too; leave one of them")
        found |= variants
    return found
