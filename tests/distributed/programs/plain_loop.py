"""Losses, bytes and memory of engines on two to four ranks, by case, and what a restored engine goes on to.

plain_loop.py CASE…    CASE: LAYOUT:METHOD[:option…]
LAYOUT: megatron, zero1 (megatron with a sharded optimizer), ddp, fsdp
options: bf16 (precision), int8 (parameters travel so), dropout, overlap, resume (half the steps, saved, restored into
another engine)
"""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from common import VOCAB, batch, everywhere, method_of, reported, run_spec, same_everywhere, through_a_file

from edgc.suite.backends.megatron.process import Place, seed_everything
from edgc.suite.backends.training_engine import build_engine, sizes
from edgc.suite.config import RunSpec

if TYPE_CHECKING:
    from edgc.suite.backends.training_engine import Engine

RANKS = int(os.environ["WORLD_SIZE"])
STEPS = 20
SHARDS = {"zero1": "optimizer", "fsdp": "full"}


def main(cases: list[str]) -> None:
    def found(case: str, spec: RunSpec, place: Place) -> dict[str, Any]:
        engine = build(spec, place)
        report = whole(engine, place)
        if not case.startswith("fsdp"):
            report["equal"] = everywhere(same_everywhere(parameters(engine), dist.group.WORLD))
        return report | ({"resumed": resumed(engine, place)} if "resume" in case else {})

    reported(cases, lambda case: spec_of(*case.split(":")), found)


def spec_of(layout: str, name: str, *options: str) -> RunSpec:
    training = {"iterations": STEPS, "clip": 0.5, "precision": "bf16" if "bf16" in options else "fp32"}
    training |= {"shard": SHARDS[layout]} if layout in SHARDS else {}
    training |= {"parameter_wire": "int8"} if "int8" in options else {}
    changes = {"training": training, "model": {"dropout": 0.1 if "dropout" in options else 0.0}}
    changes |= {"loop": "ddp"} if layout in ("ddp", "fsdp") else {}
    return run_spec(1, 1, RANKS, method_of(name, overlap="overlap" in options), **changes)


def whole(engine: Engine, place: Place) -> dict[str, Any]:
    found = steps(engine, place, range(STEPS))
    text = batch(0, place, RANKS)
    memory = sizes(engine.held())
    found["validation"] = engine.evaluate([text, text])
    assert not engine.ledger.take(), "an evaluation's traffic is nobody's"
    assert sizes(engine.held()) == memory, "an evaluation leaves nothing"
    return found | {"memory": memory, "parameters": engine.num_parameters}


def resumed(whole: Engine, place: Place) -> dict[str, Any]:
    spec = whole.spec
    first = build(spec, place)
    before = steps(first, place, range(STEPS // 2))
    state = through_a_file(first.state_dict())  # with the random numbers' state, which a second engine sets anew
    second = build(spec, place, {"seed": spec.seed + 1})
    second.load_state_dict(state)
    after = steps(second, place, range(STEPS // 2, STEPS))
    equal = everywhere(all(map(torch.equal, parameters(whole), parameters(second))))
    return {what: before[what] + after[what] for what in ("losses", "norms")} | {"equal": equal}


def parameters(engine: Engine) -> list[torch.Tensor]:
    """Of a shard, what this rank has."""
    return [getattr(p, "to_local", lambda p=p: p)() for p in engine._named.values()]


def build(spec: RunSpec, place: Place, changes: dict[str, Any] | None = None) -> Engine:
    changed = spec.model_copy(update=changes or {})
    seed_everything(changed.seed, place)
    return build_engine(changed, place, VOCAB)


def steps(engine: Engine, place: Place, which: range) -> dict[str, Any]:
    losses, norms, charges = [], [], {}
    for step in which:
        engine.clock.start()
        loss, norm = engine.train_step(step, batch(step, place, RANKS), 1e-2)
        assert math.isfinite(norm)
        engine.end_step(loss)
        seconds = engine.clock.stop()
        charges = engine.ledger.take()
        dist.all_reduce(loss)
        losses.append(float(loss) / RANKS)
        norms.append(norm)
    sent = {tag: {"payload": charge.payload_bytes, "wire": charge.wire_bytes} for tag, charge in charges.items()}
    return {"losses": losses, "norms": norms, "sent": sent, "regions": sorted(seconds)}


if __name__ == "__main__":
    main(sys.argv[1:])
