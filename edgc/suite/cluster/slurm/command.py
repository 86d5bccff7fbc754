"""Run one of SLURM's commands."""

from __future__ import annotations

import subprocess

from edgc.core.base.errors import UserError

ANSWER_SECONDS = 60


def ask(*command: str) -> str:
    """What a command prints. Raises `UserError` with what it says if it fails or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{command[0]}: {error}; does this machine belong to a SLURM cluster?") from None
    if done.returncode:
        raise UserError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()
