"""What a terminal cannot show."""

from __future__ import annotations

import io
import sys


def replace_unprintable(*streams: object) -> None:
    """From now on show "?" for characters that an encoding lacks, on stdout, stderr and `streams`: no error."""
    for stream in (sys.stdout, sys.stderr, *streams):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
