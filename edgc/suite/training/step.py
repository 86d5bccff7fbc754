"""One step of training, with its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgc.suite.config import RunSpec
from edgc.suite.training.batches import Batches
from edgc.suite.training.learning_rate import learning_rate
from edgc.suite.training.recorder import Recorder

if TYPE_CHECKING:
    from edgc.suite.training.engines import Engine


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
    recorder.step(step + 1, loss, grad_norm, lr, seconds, end, charges, engine.dense_bytes, {**marks, **engine.told()})
    return grad_norm, decided, seconds
