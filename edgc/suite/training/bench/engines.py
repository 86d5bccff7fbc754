"""`edgc bench engines`: replicas in one process beside a process each under megatron: losses, bytes, core-seconds.

Runs are interleaved, so that a disturbance hits both alike.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pandas as pd
import typer

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_json, write_text
from edgc.core.base.settings import validate
from edgc.suite.config import Method, Model, RunSpec, load
from edgc.suite.config.provenance import manifest_base

VOCABULARY, MICRO_BATCH, WARMUP = 2048, 2, 3
LOOPS = ("stacked", "megatron")


def run(model: str, methods: Sequence[str], replicas: int, steps: int, rounds: int, out: Path | None) -> None:
    """Measure and print; with `out`, a CSV, also write it, the table and a manifest beside it.

    Raises `UserError` on bad input, and if a process fails.
    """
    specs = {(method, loop): spec_of(loop, model, method, replicas, steps) for method in methods for loop in LOOPS}
    if out is not None:
        write_json(out.with_suffix(".manifest.json"), manifest_base("cpu"))
    found: dict[tuple[str, str], list[Steps]] = {key: [] for key in specs}
    for number in range(rounds):
        for key in sorted(specs, reverse=bool(number % 2)):
            found[key].append(measured(specs[key], steps))
    numbers = pd.DataFrame([row(method, *(found[method, loop] for loop in LOOPS)) for method in methods])
    tokens = MICRO_BATCH * replicas * specs[methods[0], LOOPS[0]].model.seq_length
    setting = f"{model}, {replicas} replicas, {tokens} tokens a step; {rounds} interleaved runs of {steps} steps each."
    said = markdown(numbers, tokens, setting)
    typer.echo(said)
    if out is not None:
        write_text(out, numbers.to_csv(index=False, float_format="%.4g"))
        write_text(out.with_suffix(".md"), said)


@dataclass
class Steps:
    """What a job's counted steps gave."""

    core_seconds: float  #: of a step, of all its processes together
    losses: list[float]  #: means over replicas
    payload_bytes: float  #: of a step, of all replicas together


def row(method: str, stacked: Sequence[Steps], megatron: Sequence[Steps]) -> dict[str, str | float]:
    """Median core-seconds a step, with their range over runs; losses and bytes are of the first runs: all are equal."""
    cells: dict[str, str | float] = {"method": method}
    for loop, each in zip(LOOPS, (stacked, megatron), strict=True):
        seconds = [one.core_seconds for one in each]
        cells |= {f"{loop}_s": median(seconds), f"{loop}_low_s": min(seconds), f"{loop}_high_s": max(seconds)}
        cells[f"{loop}_bytes"] = each[0].payload_bytes
    cells["ratio"] = median(a.core_seconds / b.core_seconds for a, b in zip(stacked, megatron, strict=True))
    pairs = zip(stacked[0].losses, megatron[0].losses, strict=True)
    cells["loss_difference"] = max(abs(a - b) for a, b in pairs)
    return cells


def markdown(numbers: pd.DataFrame, tokens: int, setting: str) -> str:
    """The table, and what its columns are."""
    heads = [
        "Method",
        "One process, core-ms a step",
        "A process each",
        "Core-µs a token",
        "Ratio",
        "Losses apart",
        "Bytes",
    ]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for one in numbers.to_dict("records"):
        spans = [
            f"{1e3 * one[f'{loop}_s']:.0f} ({1e3 * one[f'{loop}_low_s']:.0f}–{1e3 * one[f'{loop}_high_s']:.0f})"
            for loop in LOOPS
        ]
        a_token = " / ".join(f"{1e6 * one[f'{loop}_s'] / tokens:.0f}" for loop in LOOPS)
        sent = "equal" if one["stacked_bytes"] == one["megatron_bytes"] else "DIFFERENT"
        cells = [one["method"], *spans, a_token, f"{one['ratio']:.2f}", f"{one['loss_difference']:.1e}", sent]
        lines.append(f"| {' | '.join(cells)} |")
    captions = [
        "- Core-ms a step: seconds of computing of all processes together, median and range over runs; beside it in "
        "microseconds a token. Ratio: of runs beside each other, median.",
        "- Losses apart: the largest difference of a step's loss, in nats, from the same seed and the same tokens.",
        "- Bytes: whether all replicas together handed the same number of them to collectives in the counted steps.",
    ]
    return "\n".join([*lines, "", *captions, "", setting, ""])


def spec_of(loop: str, model: str, method: str, replicas: int, steps: int) -> RunSpec:
    """A run on as many cores as the loop has processes."""
    processes = 1 if loop == "stacked" else replicas
    plain = {
        "model": load(Model, model).model_dump(),
        "method": load(Method, method).model_dump(),
        "corpus": {"name": "random", "source": "stdlib", "tokenizer": {"kind": "bpe", "vocab_size": VOCABULARY}},
        "cluster": {
            "name": loop, "device": "cpu", "device_model": "CPU", "nodes": 1, "processes_per_node": processes,
        },
        "parallel": {"data": replicas},
        "training": {
            "iterations": WARMUP + steps, "micro_batch": MICRO_BATCH, "global_batch": MICRO_BATCH * replicas,
        },
        "seed": 1,
        "loop": loop,
    }  # fmt: skip
    return validate(RunSpec, plain, f"bench engines, loop {loop}")


def measured(spec: RunSpec, steps: int) -> Steps:
    """Run the job's processes to their end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = spec.cluster.processes
    job = {
        "CUDA_VISIBLE_DEVICES": "",
        "WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": 1,
    }
    command = [sys.executable, "-W", "ignore", "-m", "edgc.suite.training.bench.engines", spec.model_dump_json()]
    processes = []
    for rank in range(world):
        own = {name: str(value) for name, value in (job | {"RANK": rank, "LOCAL_RANK": rank}).items()}
        processes.append(subprocess.Popen([*command, str(steps)], stdout=subprocess.PIPE, env=os.environ | own))
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise UserError(f"bench engines, loop {spec.loop}: a process failed; it said why above")
    each = [Steps(**json.loads(one.splitlines()[-1])) for one in said]
    losses = [fmean(ranks) for ranks in zip(*(one.losses for one in each), strict=True)]
    return Steps(sum(one.core_seconds for one in each), losses, sum(one.payload_bytes for one in each))


def work(spec: RunSpec, steps: int) -> None:
    """In one of the processes: print what its steps gave."""
    from edgc.suite.backends.megatron.process import join, leave
    from edgc.suite.backends.training_engine import build_engine

    place = join(spec)
    engine = build_engine(spec, place, VOCABULARY)
    shape = (spec.micro_batches, MICRO_BATCH, spec.model.seq_length + 1)

    def tokens(rank: int) -> np.ndarray:
        return np.random.default_rng(rank).integers(0, VOCABULARY, shape)

    stacked = spec.loop == "stacked"
    batch = np.stack([*map(tokens, range(spec.parallel.data))]) if stacked else tokens(place.rank)
    begin, losses, sent = 0.0, [], 0
    for step in range(WARMUP + steps):
        begin = time.process_time() if step == WARMUP else begin
        loss, _ = engine.train_step(step, batch, spec.training.lr)
        engine.end_step(loss)
        charges = engine.ledger.take()
        if step >= WARMUP:
            losses.append(float(loss))
            sent += sum(charge.payload_bytes for charge in charges.values())
    print(json.dumps(asdict(Steps((time.process_time() - begin) / steps, losses, sent / steps))))
    leave()


if __name__ == "__main__":
    work(RunSpec.model_validate_json(sys.argv[1]), int(sys.argv[2]))
