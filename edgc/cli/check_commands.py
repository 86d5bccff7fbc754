"""`edgc check`: is a method, or an exchange, right that is not in this repository?"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup


class _PackageUnlessHook(TyperGroup):
    """`edgc check mine` is `edgc check package mine`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["package", *args])


app = typer.Typer(
    cls=_PackageUnlessHook, no_args_is_help=True,
    help="Check a package of methods, or any exchange: edgc check PACKAGE, edgc check hook module:function.",
)  # fmt: skip


@app.command()
def package(name: Annotated[str, typer.Argument(help="An installed package with methods, or a folder")]) -> None:
    """Run the conformance suite on what a package or folder brings. Exit code 1: a law is broken."""
    from edgc.tools.check_package import check

    sys.exit(check(name))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def hook(context: typer.Context) -> None:
    """Measure the laws of an average on a DDP hook or FSDP2 reduce-scatter, module:function.

    Exit code 1: one is broken. `edgc check hook --help` has the options.
    """
    from edgc.hooks.check import main

    sys.exit(main(context.args))
