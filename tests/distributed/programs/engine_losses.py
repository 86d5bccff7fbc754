"""Losses, gradient bytes and the ledger of a tiny GPT-2 under megatron, for the methods named, on one topology.

engine_losses.py TENSOR PIPELINE DATA OVERLAP METHOD…    (METHOD `stock`: megatron's own DDP and finalize)
OVERLAP: `plain`, `overlap`, or `in_turn` (overlap's buckets, each waited for where it is started)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads

from edgc.core.aggregators import AGGREGATORS
from edgc.core.base.settings import merge
from edgc.core.exchange.gradient_exchange import GradientExchange
from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.gpt_model import is_split
from edgc.suite.backends.megatron.process import Place, join, leave, seed_everything
from edgc.suite.config import Method, RunSpec, load
from edgc.suite.training.data.dataset import rank_batches

STEPS, VOCAB, GLOBAL, MICRO, SEQ = 6, 300, 8, 2, 32
WINDOWS = {"window": 2, "warmup_fraction": 0.3, "warmup_limit": 0.3}
LIMITS = WINDOWS | {"max_rank": 8, "min_rank": 2}
SETTINGS = {
    "powersgd": {"policy": {"rank": 4}},
    "powersgd_bf16": {"policy": {"rank": 4}},
    "topk": {"policy": {"ratio": 0.05}},
    "tagc": {"aggregator": {"min_numel": 0}},
    "tagc_released": {"aggregator": {"min_numel": 0}},
    "edgc": {"policy": LIMITS | {"alpha": 1.0, "alignment": False}},
    "edgc_released": {"policy": LIMITS | {"alpha": 1.0, "alignment": False}},
    "edgc_loss": {"policy": LIMITS},
    "lgreco": {"policy": {"rank": 4, "window": 2}},
    "accordion": {"policy": {"ranks": [2, 8], "window": 2, "eta": 0.1}},
    "edgc_measured": {"policy": WINDOWS | {"alpha": 1.0, "max_rank": 12, "mean_rank": 6}},
}


class StockEngine(MegatronEngine):
    """The same engine on megatron's own data parallelism: nothing of ours in the gradient's way."""

    def _data_parallel_model(self, module: torch.nn.Module) -> DistributedDataParallel:
        return DistributedDataParallel(config=self._config, ddp_config=self._ddp_config(), module=module)

    def _finalize_gradients(self, *arguments: Any, **options: Any) -> None:
        finalize_model_grads(*arguments, **options)


def main(tensor: int, pipeline: int, data: int, overlap: str, methods: list[str]) -> None:
    place: Place | None = None
    report = {}
    for name in methods:
        method = load(Method, "dense" if name == "stock" else name).model_dump()
        method = merge(method, SETTINGS.get(name, {}) | {"overlap": overlap != "plain"})
        spec = run_spec(tensor, pipeline, data, method)
        place = place or join(spec)
        seed_everything(spec.seed, place)
        engine = (StockEngine if name == "stock" else MegatronEngine)(spec, place, VOCAB)
        if overlap == "in_turn":
            wait_in_turn(engine.synchronisation.exchange)
        report[name] = run(engine, place, data)
    assert place is not None
    if place.rank == 0:
        print(json.dumps(report))
    leave()


def wait_in_turn(exchange: GradientExchange) -> None:
    start = exchange.start

    def finished(*arguments: Any, **options: Any) -> Any:
        start(*arguments, **options).wait()
        return SimpleNamespace(wait=lambda: None)

    exchange.start = finished  # type: ignore[method-assign]


def run_spec(tensor: int, pipeline: int, data: int, method: dict[str, Any]) -> RunSpec:
    return RunSpec.model_validate(
        {
            "model": {"name": "tiny", "num_layers": 2, "hidden_size": 32, "num_heads": 2, "seq_length": SEQ},
            "method": method,
            "corpus": {"name": "none", "source": "stdlib", "tokenizer": {"kind": "bpe", "vocab_size": VOCAB}},
            "cluster": {
                "name": "test",
                "device": "cpu",
                "device_model": "cpu",
                "nodes": 1,
                "processes_per_node": tensor * pipeline * data,
            },
            "parallel": {"tensor": tensor, "pipeline": pipeline, "data": data},
            "training": {
                "iterations": STEPS,
                "micro_batch": MICRO,
                "global_batch": GLOBAL,
                "lr": 1e-2,
                "bucket_parameters": 8000,
            },
            "seed": 7,
        }
    )


def run(engine: MegatronEngine, place: Place, data: int, steps: int = STEPS) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    text = rng.integers(0, 40, (steps, GLOBAL, SEQ + 1))
    losses, norms, charged, predicted, dense, parameters = [], [], 0, 0, 0, 0
    for step in range(steps):
        order = rank_batches(np.arange(GLOBAL), place.data, data, MICRO)
        loss, norm = engine.train_step(step, text[step][order], 1e-2)
        losses.append(mean_over_last_stage(loss, place))
        norms.append(norm)
        predicted += predicted_bytes(engine)
        dense += engine.dense_bytes
        engine.end_step(loss)
        charges = engine.ledger.take()
        charged += charges["gradient"].payload_bytes if "gradient" in charges else 0
        parameters += charges["parameters"].wire_bytes if "parameters" in charges else 0
    numbers = torch.tensor([charged, predicted, dense], dtype=torch.int64)
    dist.all_reduce(numbers)
    validation = engine.evaluate([text[0][rank_batches(np.arange(GLOBAL), place.data, data, MICRO)]])
    assert not engine.ledger.take(), "an evaluation's traffic is nobody's"
    return {
        "losses": losses,
        "norms": norms,
        "bytes": numbers.tolist(),
        "parameters": parameters,
        "validation": validation,
        "checksum": replicas_agree(engine),
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


def mean_over_last_stage(loss: torch.Tensor, place: Place) -> float:
    pair = torch.stack([loss, torch.tensor(float(place.last_stage))])
    dist.all_reduce(pair)
    return float(pair[0] / pair[1])


def replicas_agree(engine: MegatronEngine) -> bool:
    """Whether what is meant to be equal is, bit for bit.

    Parameters over data-parallel ranks, those that are not split over tensor-parallel ranks, and the two copies
    of the tied embedding.
    """
    parameters, groups = engine._named, engine._groups
    equal = same_everywhere(list(parameters.values()), groups.dp)
    equal &= same_everywhere([p for p in parameters.values() if not is_split(p)], groups.tp)
    if engine._embedding is not None:
        word = "embedding.word_embeddings.weight" if engine.place.first_stage else "output_layer.weight"
        equal &= same_everywhere([parameters[word]], groups.embd)
    everybody = torch.tensor(int(equal))
    dist.all_reduce(everybody, op=dist.ReduceOp.MIN)
    return bool(everybody)


def same_everywhere(tensors: list[torch.nn.Parameter], group: dist.ProcessGroup) -> bool:
    own = torch.cat([t.detach().reshape(-1) for t in tensors])
    first = own.clone()
    dist.broadcast(first, src=dist.get_global_rank(group, 0), group=group)
    return torch.equal(first, own)


if __name__ == "__main__":
    tensor, pipeline, data = (int(n) for n in sys.argv[1:4])
    assert Path("configs").is_dir(), "run from the repository root"
    main(tensor, pipeline, data, sys.argv[4], sys.argv[5:])
