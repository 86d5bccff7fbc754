"""Rows of numbers as columns of bytes, which a compressor makes less than half of; they come back to the last digit.

A line of JSON tells which keys each row has, and each column's kind; then the columns follow. All first bytes of a
column stand together, then all second ones, and so on, as the high ones hardly vary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

#: How floats become eight bytes each, and again floats. Of a time in whole microseconds most bytes are zero.
KINDS = {
    "micro": (lambda floats: np.rint(floats * 1e6).astype("<i8"), lambda raw: raw.view("<i8") / 1e6),
    "double": (lambda floats: floats.astype("<f8"), lambda raw: raw.view("<f8")),
}


def pack(rows: Sequence[dict[str, Any]]) -> bytes:
    """The bytes of JSON-like rows."""
    shapes = list(dict.fromkeys(map(tuple, rows)))
    numbers = {shape: i for i, shape in enumerate(shapes)}
    columns: dict[str, Any] = {}
    body = b""
    for key in dict.fromkeys(key for shape in shapes for key in shape):
        values = [row[key] for row in rows if key in row]
        if all(isinstance(value, float) for value in values):
            columns[key], planes = _floats(np.array(values))
            body += planes
        else:
            columns[key] = values
    head = {"shapes": shapes, "rows": [numbers[tuple(row)] for row in rows], "columns": columns}
    return json.dumps(head).encode() + b"\n" + body


def unpack(packed: bytes) -> list[dict[str, Any]]:
    """The rows that `pack` was given, with their keys in order."""
    line, body = packed.split(b"\n", 1)
    head = json.loads(line)
    shapes, at = head["shapes"], 0
    columns = {}
    for key, told in head["columns"].items():
        if isinstance(told, str):
            size = 8 * sum(key in shapes[number] for number in head["rows"])
            raw = np.frombuffer(body[at : at + size], np.uint8).reshape(8, -1).T.copy().reshape(-1)
            told, at = KINDS[told][1](raw).tolist(), at + size
        columns[key] = iter(told)
    return [{key: next(columns[key]) for key in shapes[number]} for number in head["rows"]]


def _floats(values: np.ndarray[Any, Any]) -> tuple[str, bytes]:
    """The first kind that gives back every bit, and its bytes."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large for `micro` is seen below
        coded = {kind: write(values) for kind, (write, _) in KINDS.items()}
    kind = next(kind for kind, raw in coded.items() if KINDS[kind][1](raw).tobytes() == values.tobytes())
    return kind, coded[kind].view(np.uint8).reshape(-1, 8).T.tobytes()
