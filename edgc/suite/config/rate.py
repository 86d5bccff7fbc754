"""Rates of links, in the spelling of `tc`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import StringConstraints

from edgc.core.base.errors import UserError

#: What a link can carry, in the spelling of `tc`: 200mbit.
Rate = Annotated[str, StringConstraints(pattern=r"^[1-9]\d*(\.\d+)?(kbit|mbit|gbit)$")]
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(rate: str) -> float:
    """A rate in the spelling of `tc`, e.g. 200mbit. Raises `UserError` for one without a unit, or not above 0."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate.strip().lower())
    if not found or not float(found[1]):
        raise UserError(
            f"link rate {rate!r}: must be a number above 0 and its unit, kbit, mbit or gbit: 200mbit, 32gbit"
        )
    return float(found[1]) * UNITS[found[2]]
