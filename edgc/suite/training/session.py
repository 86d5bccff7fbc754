"""What one launch of `mode: time` consists of; what the launcher tells the processes."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edgc.core.base import files
from edgc.core.base.settings import Settings, validate
from edgc.suite.config import RunSpec, Timing

SESSION = "session.json"


class Session(Settings):
    """Methods that take turns in one launch. Each has a run's folder beside the session's own."""

    timing: Timing = Field(description="Rates, rounds and cells")
    runs: tuple[RunSpec, ...] = Field(min_length=1, description="A run a method and model, in their order")

    def write(self, folder: Path) -> None:
        """Write it into the session's folder."""
        files.write_json(folder / SESSION, self.model_dump(mode="json"))

    @classmethod
    def read(cls, folder: Path) -> Session | None:
        """The session of this folder; None: it is a run's."""
        path = folder / SESSION
        return validate(cls, files.read_json(path), str(path)) if path.is_file() else None


def run_folder(folder: Path, spec: RunSpec) -> Path:
    """Where a run of the session in `folder` has its records."""
    return folder.parent / "runs" / spec.run_id
