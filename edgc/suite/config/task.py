"""Zero-shot tasks: configs/tasks/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from edgc.core.settings.reading import Named


class Task(Named):
    """A zero-shot task (configs/tasks/)."""

    folder: ClassVar[str] = "tasks"

    lm_eval: str | None = Field(None, description="lm-eval's stock task; null: generated from held-out text")
    metric: str = Field("acc", description="lm-eval's metric that the accuracy table shows")
    local_file: str | None = Field(
        None, description="stock task: its evaluation split in a local mirror (EDGC_EVAL_DATA), original schema"
    )

    def refusals(self) -> Iterator[str]:
        if self.lm_eval is None and self.local_file is not None:
            yield "local_file is for a stock task (lm_eval); others are generated from the corpus"
