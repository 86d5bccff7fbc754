"""`edgc check hook`: is an exchange right that is not ours?"""

from __future__ import annotations

import sys

import typer

app = typer.Typer(no_args_is_help=True, help="Check laws of an exchange that is not in this repository.")


@app.callback()
def check() -> None:
    """Check laws of an exchange that is not in this repository."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def hook(context: typer.Context) -> None:
    """Measure the laws of an average on a DDP hook or FSDP2 reduce-scatter, module:function.

    Exit code 1: one is broken. `edgc check hook --help` has the options.
    """
    from edgc.hooks.check import main

    sys.exit(main(context.args))
