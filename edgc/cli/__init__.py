"""The command line: `edgc` and `python -m edgc`."""

import sys

from edgc.cli.missing import missing
from edgc.core.base.errors import EXIT_BAD_INPUT

try:
    from edgc.cli.main import app
except ModuleNotFoundError as error:
    if sys.argv[1:3] == ["check", "hook"]:  # of all commands the one that needs nothing but what hooks need
        from edgc.hooks.check import main

        sys.exit(main(sys.argv[3:]))
    print(f"error: {missing(error)}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)

__all__ = ["app"]
