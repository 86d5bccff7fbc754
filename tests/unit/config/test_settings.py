"""Errors call a setting as its file does, wherever it is, and list what there is; the groups here are invented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from edgc.core.base.errors import UserError
from edgc.core.base.settings import Settings, validate


class Here(Settings):
    name: Literal["here", "near"]
    steps: int


class There(Settings):
    name: Literal["there"]
    steps: int
    here: int = 0


class Anywhere(Settings):
    """A group that depends on a name, by itself, in a list, and by a key."""

    place: Here | There | None = Field(None, discriminator="name")
    places: tuple[Annotated[Here | There, Field(discriminator="name")], ...] = ()
    by_key: dict[str, Annotated[Here | There, Field(discriminator="name")]] = Field({})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {"place": {"name": "there", "stpes": 1, "hree": 2}},
            [f"place.{name}: unknown setting; there are: name, steps, here" for name in ("stpes", "hree")],
        ),
        ({"place": {"name": "there"}}, ["place.steps: Field required"]),
        ({"place": {"name": "near", "steps": "x"}}, ["place.steps = 'x': Input should be a valid integer"]),
        ({"place": {"name": "there", "steps": 1, "here": "x"}}, ["place.here = 'x'"]),
        ({"places": [{"name": "here", "steps": 1, "here": 2}]}, ["places.0.here: unknown setting; there are: name"]),
        ({"by_key": {"a": {"name": "here", "steps": 1, "so": 2}}}, ["by_key.a.so: unknown setting; there are: name"]),
        ({"palce": 1}, ["palce: unknown setting; there are: place, places, by_key"]),
    ],
)  # fmt: skip
def test_settings_are_called_as_the_file_calls_them(values: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        validate(Anywhere, values, "x.yaml")
    lines = str(caught.value).splitlines()
    assert lines[0] == "x.yaml:"
    assert len(lines) == 1 + len(says)
    assert all(line.startswith(f"  {said}") for line, said in zip(lines[1:], says, strict=True)), lines
