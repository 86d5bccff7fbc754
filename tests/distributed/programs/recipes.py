"""A script of docs/frameworks.md, as it is. Prints what its ranks end with.

recipes.py SCRIPT as_printed|dense|plain|killed    in SCRIPT's folder
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import edgc.fsdp
import edgc.torch_ddp

KILLED_IN = 13  #: of 15 steps, with checkpoints after 5 and 10


class Killed(BaseException):
    """As a signal would."""


class NoExchange:
    """What a script has of an exchange, of a model that averages as PyTorch does."""

    def __init__(self, losses: list[float]) -> None:
        self._losses, self.all_ranks = losses, self

    @property
    def step(self) -> int:
        return len(self._losses)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("a run of its own")


def watched(compress: Any, case: str, found: dict[str, Any]) -> Any:
    """`compress` in case dense with that method, in case plain not at all."""

    def instead(model: Any, method: str = "", *, iterations: int, **settings: Any) -> Any:
        def forward(_: Any, __: Any, output: Any) -> None:
            found["losses"].append(float(getattr(output, "loss", output)))
            if case == "killed" and len(found["losses"]) == KILLED_IN:
                raise Killed

        model.register_forward_hook(forward)
        found["model"] = model
        if case == "plain":
            return NoExchange(found["losses"])
        chosen = {"method": "dense"} if case == "dense" else {"method": method, **settings}
        found["exchange"] = compress(model, iterations=iterations, **chosen)
        return found["exchange"]

    return instead


def main(script: str, case: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["TORCHELASTIC_RUN_ID"] = "1"  # as torchrun sets it
    os.chdir(Path(script).parent)
    found: dict[str, Any] = {"losses": []}
    for module in (edgc.torch_ddp, edgc.fsdp):
        module.compress = watched(module.compress, case, found)
    try:
        runpy.run_path(script, run_name="__main__")
    except Killed:
        pass
    else:
        assert case != "killed"
    values = [value.detach() for value in found["model"].parameters()]
    whole = torch.cat([(v.full_tensor() if hasattr(v, "full_tensor") else v).reshape(-1) for v in values])
    ends: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(ends, zlib.crc32(whole.numpy().tobytes()))
    if dist.get_rank() == 0:
        report = {"losses": found["losses"], "parameters": ends[0], "equal": len(set(ends)) == 1}
        if exchange := found.get("exchange"):
            report |= {"step": exchange.step, "exchanged": [*exchange._shapes]}
        print(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
