"""What to say where the benchmark's packages are not installed."""

from __future__ import annotations

from edgc.core.base.errors import UserError


def missing(error: ModuleNotFoundError) -> UserError:
    """The error for a user whose installation has only what the hooks need. Raises `error` if edgc itself is broken."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "edgc"):
        raise error
    extra = "suite,search" if package == "optuna" else "suite"
    return UserError(f'package {package} is not installed; the commands need: pip install "edgc[{extra}]"')
