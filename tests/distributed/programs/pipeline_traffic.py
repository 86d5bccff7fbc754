"""Training with the traffic between stages compressed, and with the tied embedding exchanged once, on one topology.

pipeline_traffic.py TENSOR PIPELINE DATA RUN…    (RUN: one of RUNS; prints what `train` returns, by run)
"""

from __future__ import annotations

import copy
import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from common import STEPS, VOCAB, batch, everywhere, mean_over_last_stage, method_of, replicas_agree, reported, run_spec
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator

from edgc.core.exchange.link_codecs import PipelineTraffic
from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.pipeline import ChargedP2P
from edgc.suite.backends.megatron.process import Place, seed_everything
from edgc.suite.config import RunSpec
from edgc.suite.config.model import TIED

LR = 1e-2
BF16 = {"name": "bf16"}
LOW, FULL = {"name": "lowrank", "rank": 4}, {"name": "lowrank", "rank": 32}  # messages are 64×32
RUNS: dict[str, dict[str, Any]] = {
    "stock": {},  # megatron's own communicator
    "none": {},
    "bf16": {"pipeline": {"forward": BF16, "backward": BF16}},
    "backward": {"pipeline": {"forward": BF16, "backward": LOW}},
    "forward": {"pipeline": {"forward": LOW}},
    "full": {},  # full rank is no smaller, so that no RunSpec allows it
    "fused": {"fused_embedding": True},
    "fused_overlap": {"fused_embedding": True, "overlap": True},
    "edgc_pipeline": {"pipeline": {"forward": LOW, "backward": LOW}},
}


def main(tensor: int, pipeline: int, data: int, runs: list[str]) -> None:
    def found(name: str, spec: RunSpec, place: Place) -> dict[str, Any]:
        report = train(build(spec, place, name))
        return report | ({"resumed": resumed(spec, place, name)} if name == "edgc_pipeline" else {})

    reported(runs, lambda name: tiny(tensor, pipeline, data, name), found)


def tiny(tensor: int, pipeline: int, data: int, run: str) -> RunSpec:
    method = method_of(run if run == "edgc_pipeline" else "dense", **RUNS[run])
    return run_spec(tensor, pipeline, data, method, model={"num_layers": 4})


def build(spec: RunSpec, place: Place, run: str) -> MegatronEngine:
    seed_everything(spec.seed, place)
    engine = MegatronEngine(spec, place, VOCAB)
    group, config = engine._groups.pp, engine._config
    if run == "stock":
        engine._p2p = P2PCommunicator(pp_group=group, config=config)
    if run == "full":
        traffic = PipelineTraffic.model_validate({"forward": FULL, "backward": FULL})
        engine._p2p = ChargedP2P(group, config, engine.ledger, traffic)
    return engine


def batches(engine: MegatronEngine, number: int) -> np.ndarray:
    return batch(number, engine.place, engine.spec.parallel.data)


def step(engine: MegatronEngine, number: int) -> float:
    loss, _ = engine.train_step(number, batches(engine, number), LR)
    engine.end_step(loss)
    return mean_over_last_stage(loss, engine.place)


def train(engine: MegatronEngine) -> dict[str, Any]:
    """Losses, and what each stage's first rank exchanged in the last step, with some of its first tied gradient."""
    validation = engine.evaluate([batches(engine, 0)])
    losses = [step(engine, 0)]
    own: dict[str, Any] = {"tied": tied_gradient(engine)}
    losses += [step(engine, number) for number in range(1, STEPS - 1)]
    engine.ledger.take()
    engine.clock.start()
    with patch.object(dist, "batch_isend_irecv", wraps=dist.batch_isend_irecv) as exchanged:
        losses.append(step(engine, STEPS - 1))
    own["exchanges"] = [[operation.op.__name__ for operation in call.args[0]] for call in exchanged.call_args_list]
    own["clocked"] = engine.clock.stop().get("pipeline", 0.0) > 0
    own["sent"] = {tag: charge.payload_bytes for tag, charge in engine.ledger.take().items()}
    place = engine.place
    everybody: list[Any] = [None] * place.world
    dist.all_gather_object(everybody, (place.stage, place.data + place.tensor, own))
    stages = [own for _, other, own in sorted(everybody, key=lambda e: e[:2]) if other == 0]
    return {"validation": validation, "losses": losses, "agree": replicas_agree(engine), "stages": stages}


def tied_gradient(engine: MegatronEngine) -> list[float]:
    """Every 499th element of the tied embedding's gradient, on the stages that have one."""
    found = [parameter.main_grad for name, parameter in engine._named.items() if name in TIED]  # type: ignore[attr-defined]
    return [value for gradient in found for value in gradient.reshape(-1)[::499].tolist()]


def resumed(spec: RunSpec, place: Place, run: str) -> dict[str, Any]:
    """Losses of a run's second half, and of another's that goes on from the first one's state in its middle."""
    whole, half = build(spec, place, run), STEPS // 2
    for number in range(half):
        step(whole, number)
    state = copy.deepcopy(whole.state_dict())
    uninterrupted = [step(whole, number) for number in range(half, STEPS)]
    other = build(spec, place, run)
    other.load_state_dict(state)
    other.evaluate([batches(other, 0)])
    continued = [step(other, number) for number in range(half, STEPS)]
    equal = everywhere(same(whole._p2p.state_dict(), other._p2p.state_dict()))
    return {"uninterrupted": uninterrupted, "continued": continued, "state_equal": equal}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


if __name__ == "__main__":
    t, p, d, *runs = sys.argv[1:]
    main(int(t), int(p), int(d), runs)
