"""Errors meant for the person who made them."""

from __future__ import annotations

EXIT_BAD_INPUT = 2
EXIT_DIVERGED = 3
EXIT_OUT_OF_TIME = 4


class UserError(Exception):
    """Something the user can mend: the message names the setting, its value, what is allowed and the remedy."""

    exit_code = EXIT_BAD_INPUT


class Interrupted(UserError):
    """Somebody stopped the command by a signal; nothing is wrong."""

    exit_code = 130


class OutOfTime(UserError):
    """A run has saved its state and stopped: its time is up. It is to be started again."""

    exit_code = EXIT_OUT_OF_TIME


class Diverged(UserError):
    """Training met a non-finite loss or gradient. The run is over, and that is its result."""

    exit_code = EXIT_DIVERGED
