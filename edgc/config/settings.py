"""Groups of settings and how plain values become one: validation with errors for the person who wrote the file."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from edgc.aggregators import AGGREGATORS, CONTROLS
from edgc.base.errors import UserError
from edgc.policies import POLICIES

S = TypeVar("S", bound=BaseModel)


class Settings(BaseModel):
    """A group of settings: unknown names are refused, values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def validate(kind: type[S], values: Any, where: str) -> S:
    """Validate plain values. Raises `UserError` that names each setting, its value and what is allowed."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError("\n".join([f"{where}:", *(_explain(kind, e) for e in error.errors())])) from None


#: Groups whose settings depend on a name. Pydantic puts the name into an error's location: policy.fixed.rank.
_NAMED = {"aggregator": AGGREGATORS | CONTROLS, "policy": POLICIES}


def _explain(kind: type[BaseModel], error: Any) -> str:
    location = error["loc"]
    setting = ".".join(str(p) for before, p in pairwise(("", *location)) if before not in _NAMED)
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return f"  {setting}: unknown setting; there are: {', '.join(_group(kind, location).model_fields)}"
    shown = f" = {error['input']!r}" if isinstance(error["input"], str | int | float | bool) else ""
    return f"  {setting}{shown}: {message}" if setting else f"  {message}"


def _group(kind: type[BaseModel], location: tuple[Any, ...]) -> type[BaseModel]:
    """The group of settings that holds the last part of `location`."""
    parts = iter(location[:-1])
    for part in parts:
        named = _NAMED.get(part)
        kind = named[next(parts)].Settings if named else kind.model_fields[part].annotation  # type: ignore[assignment]
    return kind


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, dictionary by dictionary. A changed `name` drops its group's settings."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        renamed = (
            isinstance(value, Mapping)
            and isinstance(old, Mapping)
            and value.get("name", old.get("name")) != old.get("name")
        )
        nested = isinstance(value, Mapping) and isinstance(old, Mapping) and not renamed
        merged[key] = merge(old, value) if nested else value  # type: ignore[arg-type]
    return merged
