"""Replicas of which one is killed: what the others say, how all go on from their files, and how fewer of them do.

local_steps_killed.py FOLDER METHOD…    (each phase of a method is a group of new processes)
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import edgc.local_steps
from edgc import UserError

STEPS, SAVE_EVERY, KILLED_AT = 18, 10, 13  # local steps notice late: nobody saves after the others died
CHANGES: dict[str, Any] = {"diloco_int4": {"synchronisation": {"every": 4}}, "powergossip": {"policy": {"rank": 2}}}


def main(folder: Path, methods: list[str]) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    report = {}
    for method in methods:
        found = {}
        for phase, size in (("whole", ranks), ("killed", ranks), ("again", ranks), ("fewer", ranks - 1)):
            own = folder / method / phase
            own.mkdir(parents=True, exist_ok=True)
            if rank < size and (child := os.fork()) == 0:
                try:
                    train(method, phase, folder / method, rank, size)
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            if rank < size:
                os.waitpid(child, 0)
            while len([*own.glob("*.done")]) < size - (phase == "killed"):
                time.sleep(0.05)
            found[phase] = [json.loads(each.read_text()) for each in sorted(own.glob("*.done"))]
        report[method] = found
    if rank == 0:
        print(json.dumps(report))


def train(method: str, phase: str, folder: Path, rank: int, ranks: int) -> None:
    own, said = folder / phase, {}
    wait = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{own}/store", rank=rank, world_size=ranks, timeout=wait)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
    inner = torch.optim.AdamW(model.parameters(), lr=1e-2)
    optimizer = edgc.local_steps.wrap(model, inner, method, iterations=STEPS, **CHANGES.get(method, {}))
    saved = folder / "killed" / f"{rank}.pt"
    if phase in ("again", "fewer"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.load_state_dict(torch.load(saved, weights_only=True))
        said["warned"] = [str(warning.message) for warning in caught]
    losses = []
    try:
        for step in range(optimizer.exchange.step, STEPS):
            data = torch.Generator().manual_seed(100 * step + rank)
            inputs = torch.randn(16, 12, generator=data)
            loss = cross_entropy(model(inputs), inputs[:, :8].argmax(dim=1))
            loss.backward()
            if phase == "killed" and step == KILLED_AT and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            losses.append(loss.item())
            if phase == "killed" and optimizer.exchange.step % SAVE_EVERY == 0:
                torch.save(optimizer.state_dict(), saved)
        said["losses"] = losses
    except UserError as error:
        said["error"] = str(error)
    said["end"] = [float(p.double().abs().sum()) for p in model.parameters()]
    (own / f"{rank}.tmp").write_text(json.dumps(said))
    (own / f"{rank}.tmp").rename(own / f"{rank}.done")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
