"""How the ranks of a line's runs share a model: which loop trains, and what is sharded."""

from __future__ import annotations

from typing import NamedTuple

from edgc.report.study import Line

NAMES = {
    "none": {"megatron": "megatron", "ddp": "DDP", "stacked": "one process"},
    "optimizer": {"megatron": "ZeRO-1"},
    "full": {"ddp": "FSDP2"},
}


class Layout(NamedTuple):
    """As a RunSpec has it: `loop` and `training.shard`."""

    loop: str
    shard: str

    @property
    def name(self) -> str:
        """As it is read."""
        return NAMES[self.shard][self.loop]


def layout(line: Line) -> Layout:
    """Of all runs of a line. Settings that a run's records do not have are the defaults."""
    run = line.runs.iloc[0]
    loop, shard = run.get("spec.loop"), run.get("spec.training.shard")
    return Layout(loop if isinstance(loop, str) else "megatron", shard if isinstance(shard, str) else "none")
