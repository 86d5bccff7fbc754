"""What programs of ranks have in common: a tiny GPT-2's run, a report by case, a rank's batch, what all agree on."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from edgc.core.base.settings import merge
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
    "torch_powersgd": {"policy": {"rank": 4}},
    "topk": {"policy": {"ratio": 0.05}},
    "tagc": {"aggregator": {"min_numel": 0}},
    "tagc_released": {"aggregator": {"min_numel": 0}},
    "edgc": {"policy": LIMITS | {"alpha": 1.0, "alignment": False}},
    "edgc_released": {"policy": LIMITS | {"alpha": 1.0, "alignment": False}},
    "edgc_pipeline": {"policy": LIMITS | {"alpha": 1.0, "alignment": False}},
    "edgc_loss": {"policy": LIMITS},
    "lgreco": {"policy": {"rank": 4, "window": 2}},
    "accordion": {"policy": {"ranks": [2, 8], "window": 2, "eta": 0.1}},
    "edgc_measured": {"policy": WINDOWS | {"alpha": 1.0, "max_rank": 12, "mean_rank": 6}},
}


def method_of(name: str, **changes: Any) -> dict[str, Any]:
    """A configured method with `SETTINGS`, and changed."""
    return merge(merge(load(Method, name).model_dump(), SETTINGS.get(name, {})), changes)


def run_spec(tensor: int, pipeline: int, data: int, method: str | dict[str, Any], **changes: Any) -> RunSpec:
    plain = {
        "model": {"name": "tiny", "num_layers": 2, "hidden_size": 32, "num_heads": 2, "seq_length": SEQ},
        "method": method_of(method) if isinstance(method, str) else method,
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
    return RunSpec.model_validate(merge(plain, changes))


def reported(
    cases: Iterable[str], spec_of: Callable[[str], RunSpec], found: Callable[[str, RunSpec, Place], Any]
) -> None:
    """Have rank 0 print what is `found` of each case, by case. Ranks join as the first case's spec says."""
    place: Place | None = None
    report = {}
    for case in cases:
        spec = spec_of(case)
        place = place or join(spec)
        seed_everything(spec.seed, place)
        report[case] = found(case, spec, place)
    assert place is not None
    if place.rank == 0:
        print(json.dumps(report))
    leave()


def rows(text: np.ndarray, place: Place, data: int) -> np.ndarray:
    """A rank's of a global batch, on `data` replicas."""
    return text[rank_batches(np.arange(GLOBAL), place.data, data, MICRO)]


def batch(step: int, place: Place, data: int) -> np.ndarray:
    return rows(np.random.default_rng(step).integers(0, 40, (GLOBAL, SEQ + 1)), place, data)


def everywhere(own: bool) -> bool:
    """Whether it is so on every rank."""
    flag = torch.tensor(int(own))
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag)


def through_a_file(state: Any, weights_only: bool = True) -> Any:
    """As it is read where it was saved."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


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
    return everywhere(equal)


def same_everywhere(tensors: Sequence[torch.Tensor], group: dist.ProcessGroup) -> bool:
    own = torch.cat([t.detach().reshape(-1) for t in tensors])
    first = own.clone()
    dist.broadcast(first, src=dist.get_global_rank(group, 0), group=group)
    return torch.equal(first, own)
