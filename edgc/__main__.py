"""`python -m edgc` is `edgc`."""

from edgc.cli import app

app()
