"""What the laws are asked of: all built-in parts and methods, or those of what `edgc check` names."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from edgc.core.base.errors import UserError
from edgc.core.settings.method import Method
from edgc.core.settings.outside import CONTRACTS, FOUND, Outside
from edgc.core.settings.reading import SHIPPED, available, load

#: The environment's variable that names a package or folder of `edgc.core.settings.outside`.
VARIABLE = "EDGC_CHECK"


def outside(name: str) -> Outside:
    """What a package or folder brings. Raises `UserError` if it brings nothing, or is broken."""
    found = next((each for each in FOUND if each.name == name), None)
    if found is None:
        raise UserError(f"{name}: no such folder, and no installed package with an entry point edgc.methods")
    if found.broken:
        raise UserError(f"{name}: {found.broken}")
    if not any(found.parts.values()) and not found.methods:
        raise UserError(f"{name}: brings no aggregator, policy or synchronisation, and no YAML file of a method")
    return found


ONLY = outside(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def kinds(word: str) -> Mapping[str, Any]:
    """Classes by name: aggregators, policies or synchronisations."""
    return ONLY.parts[word] if ONLY else CONTRACTS[word][2]


def defaults(word: str) -> list[Any]:
    """Settings of all classes that need no more than a name. The others are tested as methods' files have them.

    Raises `UserError` for one that no method has: its laws would not be asked for at all.
    """
    found, used = [], {getattr(method, word).name for method in methods()}
    for name, kind in kinds(word).items():
        try:
            found.append(kind.Settings(name=name))
        except ValidationError as error:
            if name not in used:
                lacking = ", ".join(str(each["loc"][0]) for each in error.errors() if each["loc"]) or str(error)
                raise UserError(
                    f"{word} {name}: {lacking}: no default, and no method gives it; bring a YAML file of a method that "
                    "uses it"
                ) from None
    return found


def methods() -> list[Method]:
    """As their files say."""
    if ONLY:
        return [load(Method, name) for name in ONLY.methods]
    return [load(Method, name, SHIPPED) for name in available(Method, SHIPPED)]


def every_case(
    argument: str, cases: Mapping[str, Any], of_methods: Collection[str] | None = None
) -> pytest.MarkDecorator:
    """Parametrize by settings, with their ids: the first of each `name` is in `check`, the methods' are in `test`.

    Of settings that no method has (`of_methods`, if given, has the ids of the others) all are in `all`. The tiers are
    those of tests/conftest.py: every mechanism is in `check` and every method in `test`.
    """
    first = {settings.name: case for case, settings in reversed([*cases.items()])}
    params = []
    for case, settings in cases.items():
        tier = "all" if of_methods is not None and case not in of_methods else "test"
        marks = () if first[settings.name] == case else pytest.mark.tier(tier)
        params.append(pytest.param(settings, id=case, marks=marks))
    return pytest.mark.parametrize(argument, params)
