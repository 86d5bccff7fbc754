"""`edgc bench engines`: core-seconds of replicas in one process, and of a process each under megatron.

Runs are interleaved, so that a disturbance hits both alike.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from statistics import median

import numpy as np
import typer

from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.suite.config import Method, Model, RunSpec, load

VOCABULARY, MICRO_BATCH, WARMUP = 2048, 2, 3
LOOPS = ("stacked", "megatron")


def run(model: str, method: str, replicas: int, steps: int, rounds: int) -> None:
    """Measure and print. Raises `UserError` on bad input, and if a process fails."""
    specs = {loop: spec_of(loop, model, method, replicas, steps) for loop in LOOPS}
    found: dict[str, list[float]] = {loop: [] for loop in LOOPS}
    for number in range(rounds):
        for loop in LOOPS if number % 2 else reversed(LOOPS):
            found[loop].append(core_seconds(specs[loop], steps))
    tokens = specs["stacked"].training.global_batch * specs["stacked"].model.seq_length
    typer.echo(f"{model}, {method}, {replicas} replicas, {tokens} tokens a step; {rounds} runs of {steps} steps each")
    for loop, each in found.items():
        low, middle, high = (1e3 * value for value in (min(each), median(each), max(each)))
        a_token = f"{1e3 * middle / tokens:.1f} core-µs a token"
        typer.echo(f"{loop:9} {middle:7.1f} core-ms a step ({low:.1f}–{high:.1f}), {a_token}")
    ratio = median(own / theirs for own, theirs in zip(*found.values(), strict=True))
    typer.echo(f"ratio     {ratio:7.2f} (median over rounds)")


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


def core_seconds(spec: RunSpec, steps: int) -> float:
    """Seconds of computing that a step takes of all the run's processes together, after a warm-up."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = spec.cluster.processes
    job = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    command = [sys.executable, "-W", "ignore", "-m", "edgc.suite.training.bench.engines", spec.model_dump_json()]
    processes = []
    for rank in range(world):
        own = {name: str(value) for name, value in (job | {"RANK": rank, "LOCAL_RANK": rank}).items()}
        processes.append(subprocess.Popen([*command, str(steps)], stdout=subprocess.PIPE, env=os.environ | own))
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise UserError(f"bench engines, loop {spec.loop}: a process failed; it said why above")
    return sum(float(each.split()[-1]) for each in said) / steps


def work(spec: RunSpec, steps: int) -> None:
    """In one of the processes: print its seconds of computing for these steps."""
    from edgc.suite.backends.megatron.process import join, leave
    from edgc.suite.backends.training_engine import build_engine

    place = join(spec)
    engine = build_engine(spec, place, VOCABULARY)
    shape = (spec.micro_batches, MICRO_BATCH, spec.model.seq_length + 1)
    shape = (spec.parallel.data, *shape) if spec.loop == "stacked" else shape
    tokens = np.random.default_rng(place.rank).integers(0, VOCABULARY, shape)
    begin = 0.0
    for step in range(WARMUP + steps):
        begin = time.process_time() if step == WARMUP else begin
        loss, _ = engine.train_step(step, tokens, spec.training.lr)
        engine.end_step(loss)
        engine.ledger.take()
    print(time.process_time() - begin)
    leave()


if __name__ == "__main__":
    work(RunSpec.model_validate_json(sys.argv[1]), int(sys.argv[2]))
