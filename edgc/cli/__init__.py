"""The command line: `edgc` and `python -m edgc`."""

from edgc.cli.main import app

__all__ = ["app"]
