"""Losses, gradient bytes and the ledger of a tiny GPT-2 under megatron, by case, on one topology.

engine_losses.py TENSOR PIPELINE DATA CASE…    CASE: METHOD[:option…]    (METHOD `stock`: megatron's own DDP, finalize
and distributed optimizer)
options: overlap, in_turn (overlap's buckets, each waited for where it is started), shard (a sharded optimizer),
wire=… (how its parameters travel), bf16 (precision), steps=…
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from common import GLOBAL, SEQ, STEPS, VOCAB, mean_over_last_stage, method_of, replicas_agree, reported, rows, run_spec
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads

from edgc.core.aggregators import AGGREGATORS
from edgc.core.exchange.gradient_exchange import GradientExchange
from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.process import Place
from edgc.suite.config import RunSpec


class StockEngine(MegatronEngine):
    """The same engine on megatron's own data parallelism: nothing of ours in the gradient's way."""

    def _data_parallel_model(self, module: torch.nn.Module) -> DistributedDataParallel:
        return DistributedDataParallel(config=self._config, ddp_config=self._ddp_config(), module=module)

    def _finalize_gradients(self, *arguments: Any, **options: Any) -> None:
        finalize_model_grads(*arguments, **options)


def main(tensor: int, pipeline: int, data: int, cases: list[str]) -> None:
    def spec_of(case: str) -> RunSpec:
        name, *options = case.split(":")
        given = dict(option.split("=") for option in options if "=" in option)
        method = method_of("dense" if name == "stock" else name, overlap=bool({"overlap", "in_turn"} & {*options}))
        training = {"iterations": int(given.get("steps", STEPS)), "precision": "bf16" if "bf16" in options else "fp32"}
        training |= {"shard": "optimizer"} if "shard" in options else {}
        training |= {"parameter_wire": given["wire"]} if "wire" in given else {}
        return run_spec(tensor, pipeline, data, method, training=training)

    def found(case: str, spec: RunSpec, place: Place) -> dict[str, Any]:
        engine = (StockEngine if case.startswith("stock") else MegatronEngine)(spec, place, VOCAB)
        if "in_turn" in case:
            wait_in_turn(engine.synchronisation.exchange)
        return run(engine, place, data)

    reported(cases, spec_of, found)


def wait_in_turn(exchange: GradientExchange) -> None:
    start = exchange.start

    def finished(*arguments: Any, **options: Any) -> Any:
        start(*arguments, **options).wait()
        return SimpleNamespace(wait=lambda: None)

    exchange.start = finished  # type: ignore[method-assign]


def run(engine: MegatronEngine, place: Place, data: int) -> dict[str, Any]:
    steps = engine.spec.training.iterations
    text = np.random.default_rng(0).integers(0, 40, (steps, GLOBAL, SEQ + 1))
    losses, norms, charged, predicted, dense, parameters = [], [], 0, 0, 0, 0
    ranks: set[int | None] = set()
    for step in range(steps):
        loss, norm = engine.train_step(step, rows(text[step], place, data), 1e-2)
        losses.append(mean_over_last_stage(loss, place))
        norms.append(norm)
        predicted += predicted_bytes(engine)
        dense += engine.dense_bytes
        ranks |= {record.get("rank") for record in engine.synchronisation.decisions(step)}
        engine.end_step(loss)
        charges = engine.ledger.take()
        charged += charges["gradient"].payload_bytes if "gradient" in charges else 0
        parameters += charges["parameters"].wire_bytes if "parameters" in charges else 0
    numbers = torch.tensor([charged, predicted, dense], dtype=torch.int64)
    dist.all_reduce(numbers)
    of_all: list[Any] = [None] * place.world
    dist.all_gather_object(of_all, ranks)
    validation = engine.evaluate([rows(text[0], place, data)])
    assert not engine.ledger.take(), "an evaluation's traffic is nobody's"
    return {
        "losses": losses,
        "norms": norms,
        "bytes": numbers.tolist(),
        "parameters": parameters,
        "validation": validation,
        "checksum": replicas_agree(engine),
        "ranks": sorted(set().union(*of_all) - {None}),
        "buckets": len(engine.model.bucket_groups),
        "decays": sorted({p.dim() for g in engine.optimizer.param_groups if g["weight_decay"] for p in g["params"]}),
    }


def predicted_bytes(engine: MegatronEngine) -> int:
    """The analytic count: the payload formula over each bucket's shapes, at the step's decision."""
    exchange = engine.synchronisation.exchange
    if exchange.comm.size == 1 or isinstance(engine, StockEngine):
        return 0
    names = {p: n for n, p in engine._named.items()}
    aggregator = AGGREGATORS[engine.spec.method.aggregator.name](engine.spec.method.aggregator, seed=engine.spec.seed)
    aggregator.layout, ranks = exchange.aggregator.layout, exchange.comm.size
    return sum(
        aggregator.workload({names[p]: tuple(p.shape) for p in group.params}, exchange._begun.decision, ranks).payload
        for group in engine.model.bucket_groups
    )


if __name__ == "__main__":
    t, p, d, *cases = sys.argv[1:]
    main(int(t), int(p), int(d), cases)
