"""One training run, from top to bottom, on one of its processes."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any, NoReturn

from edgc.core.base import files
from edgc.core.base.errors import Diverged
from edgc.core.exchange.costs import from_plain, link_speed, to_plain
from edgc.core.policies.stage_alignment import ExchangeCost
from edgc.core.settings.method import EVERY_STEP
from edgc.suite.backends.megatron import checkpoint, hf_export
from edgc.suite.backends.megatron.process import Place, join, leave
from edgc.suite.backends.training_engine import Engine, build_engine
from edgc.suite.config import RunSpec, Training
from edgc.suite.config.provenance import manifest_base
from edgc.suite.training.data.dataset import Batches, open_corpus
from edgc.suite.training.followed_links import follow
from edgc.suite.training.node_links import network_environment
from edgc.suite.training.recorder import Recorder
from edgc.suite.training.stopping import Stopping

FLUSH_INTERVAL = 20  # steps between gathers of step records
COSTS = "exchange_costs.json"


def train(spec: RunSpec, run_dir: Path, corpus_dir: Path) -> None:
    """Train `spec` to its end, from the newest whole checkpoint if there is one. Collective over the job.

    Writes the run folder's records; `status.json` says `done` only after the export is there. Raises `Diverged`
    on every rank at the first gradient norm that is not finite. Returns early, with a checkpoint and the reason in
    `status.json`, if the run is asked to stop.
    """
    corpus = open_corpus(corpus_dir, spec.model.seq_length, spec.training.global_batch)
    vocab_size = corpus.manifest["vocab_size"]
    place = join(spec)
    engine = build_engine(spec, place, vocab_size, read_costs(run_dir))
    batches = Batches(spec, corpus, place.data)
    recorder = Recorder(spec, run_dir, place)
    iterations, synchronisation = spec.training.iterations, engine.synchronisation
    assert synchronisation is not None, "a hook of PyTorch's own is timed only"
    synchronisation.watched_by(recorder.probe)

    # without an exchange of all in every step ranks meet when their records are gathered
    stopping = Stopping(run_dir, place.rank, 1 if spec.method.synchronisation == EVERY_STEP else FLUSH_INTERVAL)
    first = restore(spec, run_dir, place, engine, recorder)
    links = spec.cluster.links
    trace = {"trace": links.trace.title} if links and links.trace else {}
    write_manifest(
        spec, run_dir, corpus.manifest, engine, engine.group and link_speed(engine.group, place.device), **trace
    )
    notes = recorder.notes(synchronisation.note)
    if first == 0:
        recorder.decisions(engine.decisions())
    recorder.aside_seconds["startup"] += time.time() - float(os.environ.get("EDGC_LAUNCHED_AT", time.time()))

    followed = follow(spec.cluster, place.rank)
    for step in range(first, iterations):
        finished = step + 1
        if followed:
            followed.begin_step(step, recorder.training_seconds)
        grad_norm, decided, _ = take_step(step, spec, engine, batches, recorder)
        if followed:
            recorder.mark_last(**followed.end_step())
        if not math.isfinite(grad_norm):
            _diverged(recorder, engine, finished, divergence(spec, finished, grad_norm))
        recorder.decisions(decided)
        if due(finished, FLUSH_INTERVAL, iterations):
            recorder.flush()
        if due(finished, spec.training.eval_interval, iterations):
            with recorder.aside("evaluation"):
                recorder.evaluation(finished, loss := engine.evaluate(batches.validation()))
            if not math.isfinite(loss):  # on all ranks
                _diverged(recorder, engine, finished, divergence(spec, finished, loss, "validation loss"))
        if finished == iterations:
            recorder.memory(engine.held())
        reason = stopping.due(finished) if finished < iterations else None
        if reason or due(finished, spec.training.checkpoint_interval, iterations):
            with recorder.aside("checkpoint"):
                state = {"engine": engine.state_dict(), "recorder": recorder.state_dict()}
                state["place"] = {"data": place.data, "tensor": place.tensor}
                checkpoint.save(run_dir / "checkpoint", finished, place.rank, state, spec.spec_id)
        if reason:
            recorder.write_status(reason, finished, iterations, "asked to stop; its state is saved")
            leave()
            return

    parameters = engine.num_parameters
    if place.rank == 0:
        last = checkpoint.latest(run_dir / "checkpoint", place.world, spec.spec_id)
        assert last is not None  # written with the last step
        hf_export.export(last, spec.model, vocab_size, corpus_dir / "tokenizer.json", run_dir / "export")
    recorder.write_status("done", iterations, iterations, notes, num_parameters=parameters)
    leave()


def _diverged(recorder: Recorder, engine: Engine, finished: int, message: str) -> NoReturn:
    """End the run with that status. On all ranks."""
    recorder.flush()
    iterations = engine.spec.training.iterations
    recorder.write_status("diverged", finished, iterations, message, num_parameters=engine.num_parameters)
    raise Diverged(message)


def due(finished: int, interval: int, iterations: int) -> bool:
    """Whether something that happens every `interval` steps, and after the last one, happens now."""
    return finished % interval == 0 or finished == iterations


def restore(spec: RunSpec, run_dir: Path, place: Place, engine: Engine, recorder: Recorder) -> int:
    """Load the newest whole checkpoint and drop the records made after it. Returns the finished steps, 0 for none."""
    found = checkpoint.latest(run_dir / "checkpoint", place.world, spec.spec_id)
    step = 0
    if found is not None:
        step = int(found.name.removeprefix("step-"))
        state = checkpoint.load(found, place.rank)
        engine.load_state_dict(state["engine"])
        recorder.load_state_dict(state["recorder"])
    recorder.rewind(step)
    return step


def read_costs(run_dir: Path) -> list[ExchangeCost | None] | None:
    """What an earlier start of this run measured: ranks must not depend on when it was interrupted."""
    path = run_dir / COSTS
    return from_plain(files.read_json(path)) if path.is_file() else None


def write_manifest(
    spec: RunSpec, run_dir: Path, corpus: dict, engine: Engine, bandwidth: float | None, **link: Any
) -> None:
    """What the numbers rest on: code, packages, device, measured link (bytes a rank sends a second), corpus."""
    if engine.place.rank:
        return
    if engine.costs:
        files.write_json(run_dir / COSTS, to_plain(engine.costs))
    base = manifest_base(spec.cluster.device)
    base["device"] |= {"count": engine.place.world, "named": spec.cluster.device_model}
    files.write_json(
        run_dir / "manifest.json",
        base
        | {
            "spec_id": spec.spec_id,
            "seed": spec.seed,
            "link": {"nominal_gbit": spec.cluster.link_gbit, "all_reduce_bytes_per_second": bandwidth} | link,
            "exchange_costs": to_plain(engine.costs),
            "environment": network_environment(spec.cluster),
            "corpus": corpus["sha256"],
        },
    )


def divergence(spec: RunSpec, step: int, found: float, what: str = "gradient norm") -> str:
    """What to tell the person whose run diverged."""
    return (
        f"{what} is {found} at step {step}: the run diverged. Lower training.lr (now "
        f"{spec.training.lr:g}) or training.clip (now {spec.training.clip:g}), lengthen training.warmup_fraction (now "
        f"{spec.training.warmup_fraction:g}), or compress less (method {spec.method.name})"
    )


def take_step(
    step: int, spec: RunSpec, engine: Engine, batches: Batches, recorder: Recorder, **marks: Any
) -> tuple[float, list[dict[str, Any]], dict[str, float]]:
    """Take 0-based `step` and keep its row, with `marks` in it.

    Returns the gradient norm, decision records, and this rank's seconds by region.
    """
    recorder.begin_step()
    engine.clock.start()
    lr = learning_rate(step, spec.training)
    loss, grad_norm = engine.train_step(step, batches.train(step), lr)
    decided = engine.end_step(loss)
    seconds = engine.clock.stop()
    engine.timed(seconds)
    end = engine.clock.last_end("encode", "wire", "decode")
    charges = engine.ledger.take()
    marks |= engine.measured
    recorder.step(step + 1, loss, grad_norm, lr, seconds, end, charges, engine.dense_bytes, marks)
    return grad_norm, decided, seconds


def learning_rate(step: int, t: Training) -> float:
    """Learning rate of 0-based optimizer `step`.

    The warm-up is part of the decay's steps; it reaches `lr` with its last step. Past the decay the rate stays
    at `min_lr`.
    """
    decay = t.decay_iterations or t.iterations
    warmup = round(t.warmup_fraction * decay)
    if step < warmup:
        return t.lr * (step + 1) / warmup
    if step >= decay:
        return t.min_lr
    progress = (step - warmup) / (decay - warmup)
    return t.min_lr + 0.5 * (math.cos(math.pi * progress) + 1.0) * (t.lr - t.min_lr)
