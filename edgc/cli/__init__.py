"""The command line: `edgc` and `python -m edgc`."""

import sys

from edgc.cli.missing import missing
from edgc.core.base.errors import EXIT_BAD_INPUT

try:
    from edgc.cli.main import app
except ModuleNotFoundError as error:
    print(f"error: {missing(error)}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)

__all__ = ["app"]
