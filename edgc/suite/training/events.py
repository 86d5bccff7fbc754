"""A run's records as TensorBoard events too, for whoever watches runs there."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any


class Events:
    """Events in `<run>/tensorboard`, written by torch's own writer. They repeat the records, and nothing reads them.

    first: finished steps that the run goes on from. TensorBoard then leaves out what an earlier start wrote of later
    ones.
    """

    def __init__(self, run_dir: Path, first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # asks for package tensorboard: see `check_machine`

        self._writer = SummaryWriter(str(run_dir / "tensorboard"), purge_step=first + 1)

    def steps(self, rows: list[dict[str, Any]]) -> None:
        """Add every number of some step records; seconds and bytes are groups of their own."""
        for row in rows:
            for name, value in row.items():
                if isinstance(value, Real) and name != "step":
                    self._writer.add_scalar(tag(name), value, row["step"])
        self._writer.flush()

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Add a validation loss."""
        self._writer.add_scalar("train/validation_loss", record["loss"], record["step"])
        self._writer.flush()


def tag(name: str) -> str:
    """Where TensorBoard shows a column of the step records: t_wire in seconds/wire, wire_bytes in bytes/wire."""
    if name.startswith("t_"):
        return f"seconds/{name.removeprefix('t_')}"
    if name.endswith("_bytes"):
        return f"bytes/{name.removesuffix('_bytes')}"
    return f"train/{name}"
