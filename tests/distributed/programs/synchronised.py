"""Synchronisations under megatron: what ranks share and what is their own, resuming, evaluation, a bad gradient.

synchronised.py TENSOR PIPELINE DATA CASE…    (of CASES; prints a verdict a law, by case)
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
import torch.distributed as dist
from common import VOCAB, batch, everywhere, mean_over_last_stage, replicas_agree, reported, run_spec, through_a_file

from edgc.core.base.settings import merge
from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.process import Place, seed_everything
from edgc.suite.config import Method, RunSpec, load
from edgc.suite.config.model import TIED

STEPS, CUT, PERIOD = 8, 5, 3  # exchanges after steps 2, 5 and 7
#: Two fragments, launched after steps 0, 2 and 4 for one step, and in the last step without delay.
STREAM = {"every": 4, "fragments": 2, "delay": 1, "mixing": 0.5}
LOWRANK = {"aggregator": {"name": "lowrank"}, "policy": {"name": "fixed", "rank": 4}}
EMBEDDINGS = {"exclude": ["word_embeddings", "position_embeddings", "output_layer"]}
RANK = {"policy": {"rank": 4}, "placement": EMBEDDINGS}
CASES = {
    "every_step": ("powersgd", {"policy": {"rank": 4}}),
    "delayed": ("delayed", {}),
    "delayed_lowrank": ("delayed", LOWRANK),
    "delayed_2_lowrank": ("delayed_2", LOWRANK),
    "delayed_taylor": ("delayed_corrected", {"synchronisation": {"delay": 2}}),
    "delayed_prediction": ("delayed_predicted", {}),
    "powergossip": ("powergossip", {"policy": {"rank": 4}, "synchronisation": {"consensus": 0.5}}),
    "diloco": ("diloco", {"synchronisation": {"every": PERIOD}}),
    "diloco_lowrank": ("diloco", LOWRANK | {"synchronisation": {"every": PERIOD}}),
    "diloco_bf16": ("diloco", {"synchronisation": {"every": PERIOD}}),  # whose optimizer has fp32 copies
    "streaming": ("streaming_diloco", {"synchronisation": STREAM}),
    "streaming_lowrank_bf16": ("diloco", LOWRANK | {"synchronisation": STREAM}),
    "muloco": ("muloco", {"synchronisation": {"every": PERIOD}}),
    "sparseloco": ("sparseloco", {"synchronisation": {"every": PERIOD}}),
    "muon": ("dense", {}),
    "muon_bf16": ("dense", {}),
    "dion": ("dion", RANK),
    "orth_dion_bf16": ("orth_dion", RANK),
    "demo": ("demo", {}),
    "onebit_adam": ("onebit_adam", {"policy": {"start_step": 3}}),
    "cdadam": ("cdadam", {}),
}


def main(tensor: int, pipeline: int, data: int, cases: list[str]) -> None:
    def spec_of(case: str) -> RunSpec:
        name, changes = CASES[case]
        method = merge(load(Method, name).model_dump(), changes)
        own = {"iterations": STEPS, "precision": "bf16" if case.endswith("bf16") else "fp32"}
        own |= {"optimizer": "muon"} if case.startswith("mu") else {}
        return run_spec(tensor, pipeline, data, method, training=own)

    reported(cases, spec_of, lambda _, spec, place: laws(spec, place))


def fresh(spec: RunSpec, place: Place) -> MegatronEngine:
    seed_everything(spec.seed, place)
    return MegatronEngine(spec, place, VOCAB)


def take(engine: MegatronEngine, step: int) -> tuple[float, float, int]:
    """Loss over all ranks, agreed norm of the first rank, payload bytes of all."""
    loss, norm = engine.train_step(step, batch(step, engine.place, engine.spec.parallel.data), 1e-2)
    engine.end_step(loss)
    charges = engine.ledger.take()
    payload = torch.tensor([charges["gradient"].payload_bytes if "gradient" in charges else 0])
    dist.all_reduce(payload)
    norms = torch.tensor([norm], dtype=torch.float64)
    dist.broadcast(norms, 0)
    return mean_over_last_stage(loss, engine.place), float(norms), int(payload)


def parameters(engine: MegatronEngine) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in engine._named.values()])


def laws(spec: RunSpec, place: Place) -> dict[str, Any]:
    settings = spec.method.synchronisation
    whole, seen, equal, shown, restored = fresh(spec, place), [], [], True, True
    for step in range(STEPS):
        seen.append(take(whole, step))
        equal.append(replicas_agree(whole))
        own = parameters(whole).clone()
        with whole.synchronisation.synchronised(whole.replica):
            shown &= replicas_agree(whole)
        restored &= torch.equal(own, parameters(whole))
    last = parameters(whole)
    tied = copies_agree(whole)

    first = fresh(spec, place)
    for step in range(CUT):
        take(first, step)
    first.evaluate([batch(99, place, spec.parallel.data)])  # changes nothing
    state = through_a_file(first.state_dict())  # with the random numbers' state, which a second engine sets anew
    second = fresh(spec, place)
    second.load_state_dict(state)
    again = [take(second, step) for step in range(CUT, STEPS)]
    resumed = again == seen[CUT:] and torch.equal(parameters(second), last)

    return {
        "equal": equal,
        "expected": [settings.equal_after(step, STEPS) for step in range(STEPS)],
        "shown": everywhere(shown),
        "tied": everywhere(tied),
        "restored": everywhere(restored),
        "resumed": everywhere(resumed),
        "payload": [payload for _, _, payload in seen],
        "losses": [loss for loss, _, _ in seen],
        "stopped": stopped_at(spec, place),
    }


def copies_agree(engine: MegatronEngine) -> bool:
    """Whether the first and the last stage hold the same word embedding."""
    (mine,) = [p.detach().clone() for name, p in engine._named.items() if name in TIED]
    other = mine.clone()
    dist.all_reduce(other, op=dist.ReduceOp.MAX, group=engine._groups.embd)
    return torch.equal(mine, other)


def stopped_at(spec: RunSpec, place: Place) -> list[int]:
    """The step in which each rank learns of a gradient that is not finite, on one replica, in step 3."""
    engine, stopped = fresh(spec, place), STEPS
    ready = engine.synchronisation.bucket

    def poisoned(gradients: Any) -> Any:
        if engine._step == 3 and place.data == 0 and place.last_stage:
            gradients[0].tensor.fill_(math.nan)
        return ready(gradients)

    engine.synchronisation.bucket = poisoned  # type: ignore[method-assign]
    for step in range(STEPS):
        loss, norm = engine.train_step(step, batch(step, place, spec.parallel.data), 1e-2)
        if not math.isfinite(norm):
            stopped = step
            break
        engine.end_step(loss)
    everybody = [0] * place.world
    dist.all_gather_object(everybody, stopped)
    return everybody


if __name__ == "__main__":
    t, p, d, *cases = sys.argv[1:]
    main(int(t), int(p), int(d), cases)
