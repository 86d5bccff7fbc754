"""Groups of settings and how plain values become one: validation with errors for the person who wrote the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Tag, ValidationError

from edgc.core.base.errors import UserError

S = TypeVar("S", bound=BaseModel)


class Settings(BaseModel):
    """A group of settings: unknown names are refused, values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def validate(kind: type[S], values: Any, where: str) -> S:
    """Validate plain values. Raises `UserError` that names each setting, its value and what is allowed."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError("\n".join([f"{where}:", *_one_screen(_explain(kind, e) for e in error.errors())])) from None


def shown(value: Any) -> str:
    """A value as an error shows it: the beginning of one that is too long to read."""
    return cut(repr(value), 80)


def cut(text: str, most: int) -> str:
    """Text on one line, and the beginning of it if it has more than `most` characters."""
    text = " ".join(text.split("\n"))
    return text if len(text) <= most else f"{text[: most - 1]}…"


ROWS, COLUMNS = 20, 100  # of a screen, less what the shell and the error's first line take


def _one_screen(lines: Iterable[str]) -> list[str]:
    lines = [cut(line, 5 * COLUMNS) for line in lines]
    rows, fitting = 0, 0
    for line in lines:
        rows += -(-len(line) // COLUMNS)
        fitting += rows < ROWS
    return lines if fitting == len(lines) else [*lines[:fitting], f"  and {len(lines) - fitting} more"]


def _explain(kind: type[BaseModel], error: Any) -> str:
    names, _ = _follow(kind, error["loc"])
    setting, message = ".".join(names), error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        _, groups = _follow(kind, error["loc"][:-1])
        there = dict.fromkeys(name for group in groups for name in group.model_fields)
        return f"  {setting}: unknown setting; there are: {', '.join(there)}"
    if error["type"] in ("tuple_type", "list_type"):
        message += ": a list in brackets, as [first, second]"
    value = f" = {shown(error['input'])}" if isinstance(error["input"], str | int | float | bool) else ""
    return f"  {setting}{value}: {message}" if setting else f"  {message}"


def _follow(kind: type[BaseModel], location: Sequence[Any]) -> tuple[list[str], list[type[BaseModel]]]:
    """The names that lead to a place in `kind` as its file has them, and the groups of settings that may be there.

    Where a group's settings depend on its `name`, pydantic puts that into the location, too: policy.fixed.rank. So it
    does with the tag of a setting's form.
    """
    names: list[str] = []
    groups, tags = [kind], set[str]()
    for part in location:
        if part in tags:
            tags = set()
            continue
        called = [group for group in groups if part in _names(group)]
        if len(groups) > 1 and called:
            groups = called
            continue
        names.append(str(part))
        fields = [group.model_fields[part] for group in groups if part in group.model_fields]
        if fields:  # else a place in a list, or a key
            groups = [group for field in fields for group in _groups(field.annotation)]
            tags = {tag for field in fields for tag in _tags(field.annotation)}
    return names, groups


def _groups(annotation: Any) -> list[type[BaseModel]]:
    """The groups of settings that a field of this type may hold."""
    if get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [group for part in get_args(annotation) for group in _groups(part)]


def _tags(annotation: Any) -> list[str]:
    """The tags that tell the forms of a field of this type apart."""
    own = [annotation.tag] if isinstance(annotation, Tag) else []
    return own + [tag for part in get_args(annotation) for tag in _tags(part)]


def _names(group: type[BaseModel]) -> tuple[Any, ...]:
    """What may stand in the group's field `name`, if it tells these settings from others."""
    return get_args(group.model_fields["name"].annotation) if "name" in group.model_fields else ()


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, group by group. A changed `name` or `of` drops its group's settings."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping) and _same(old, value)
        merged[key] = merge(old, value) if nested else value  # type: ignore[arg-type]
    return merged


def _same(group: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Whether the changes are to what the group is about: it has neither another name nor another base."""
    renamed = changes.get("name", group.get("name")) != group.get("name")
    return not renamed and ("of" not in group or changes.get("of", group["of"]) == group["of"])
