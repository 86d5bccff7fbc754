"""Groups of settings and how plain values become one: validation with errors for the person who wrote the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, to_jsonable_python

from edgc.core.base.errors import UserError

S = TypeVar("S", bound=BaseModel)


class Settings(BaseModel):
    """A group of settings: unknown names are refused, values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def refusals(self) -> Iterator[str]:
        """Why settings that are each valid do not fit together. The first one is the error."""
        yield from ()

    @model_validator(mode="before")
    @classmethod
    def _settings_are_known(cls, values: Any) -> Any:
        there = ", ".join(cls.model_fields)
        why = PydanticCustomError("unknown", "unknown setting; there are: {there}", {"there": there})
        unknown = [name for name in values if name not in cls.model_fields] if isinstance(values, dict) else []
        if unknown:
            details = [InitErrorDetails(type=why, loc=(name,), input=None) for name in unknown]
            raise ValidationError.from_exception_data(cls.__name__, details)
        return values

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        for why in self.refusals():
            raise ValueError(why)
        return self


def younger(default: Any, **rest: Any) -> Any:
    """A `Field` that is younger than published runs: at its default it is left out of what is saved.

    A run is found by what it was asked for, so that its name stays when a setting is added.
    """
    return Field(default, exclude_if=lambda value: value == default, **rest)


def left_out(group: BaseModel) -> dict[str, Any]:
    """Defaults, as JSON has them, of the `younger` settings of a group and of the groups in it."""
    fields = type(group).model_fields
    found = {name: to_jsonable_python(field.default) for name, field in fields.items() if field.exclude_if}
    groups = {name: value for name in fields if isinstance(value := getattr(group, name), BaseModel)}
    return found | {name: left_out(value) for name, value in groups.items()}


def validate(kind: type[S], values: Any, where: str) -> S:
    """Validate plain values. Raises `UserError` that names each setting, its value and what is allowed."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError("\n".join([f"{where}:", *_one_screen(_explain(values, e) for e in error.errors())])) from None


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


def _explain(values: Any, error: Any) -> str:
    """One line: the setting as its file calls it, its value, what is allowed."""
    names: list[str] = []
    for part in error["loc"]:
        keys = values if isinstance(values, Mapping) else range(len(values)) if isinstance(values, Sequence) else ()
        if part in keys:
            values = values[part]
        elif error["type"] != "missing" or part != error["loc"][-1]:
            continue  # pydantic's name of a group's form: policy.fixed.rank is policy.rank in the file
        names.append(str(part))
    setting, message = ".".join(names), error["msg"].removeprefix("Value error, ")
    if error["type"] in ("tuple_type", "list_type"):
        message += ": a list in brackets, as [first, second]"
    value = f" = {shown(error['input'])}" if isinstance(error["input"], str | int | float | bool) else ""
    return f"  {setting}{value}: {message}" if setting else f"  {message}"


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
