"""Tiny models whose every method is run on a device without data, on ranks of small jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.settings import validate
from edgc.core.policies.windowed import WindowedSettings
from edgc.suite.config import Method, RunSpec, available, load
from edgc.tools.dry import device_guard, job
from edgc.tools.dry.short import STEPS, short

#: Their rounds of peeling go on for as long as data says: the host reads it, and nothing can be guessed for it.
SKETCHES = {"lhc", "tagc", "tagc_released"}
LOSSLESS = {"lossless", "lossless_bf16"}  # their messages are as long as data says
#: These need the loop of PyTorch's own DDP, for CPUs, and more than two stages.
ELSEWHERE = {"torch_powersgd", "optimus_cc_stages"}
EVERY = {*available(Method)} - ELSEWHERE - SKETCHES - LOSSLESS
#: These look at matrices as wholes, which tensor parallelism cuts, or would do something else on its ranks.
WHOLE = {
    name
    for name in EVERY
    if (method := load(Method, name)).synchronisation.whole_matrices  # type: ignore[attr-defined]
    or method.synchronisation.paced  # type: ignore[attr-defined]
    or method.aggregator.mixes_tensors  # type: ignore[attr-defined]
    or method.optimizer == "muon"
}
#: Whose collectives differ in kind.
APART = {
    "delayed", "dense_bf16_overlap", "diloco", "edgc", "edgc_measured", "edgc_pipeline", "powersgd", "topk",
}  # fmt: skip
NARROW = {"max_rank": 32, "rank": 16}  # for matrices of width 64


def halves() -> tuple[set[str], set[str]]:
    """Methods for two jobs: every method is in one; one of each aggregator is in both."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(EVERY):
        kinds.setdefault(load(Method, name).aggregator.name, []).append(name)
    alike = [name for names in kinds.values() for name in names[1:]]
    both = {names[0] for names in kinds.values()}
    return both | {*alike[::2]}, both | {*alike[1::2]}


@dataclass(frozen=True)
class Ran:
    """Runs, what their ranks did, and where."""

    specs: list[RunSpec]
    records: job.Records
    folder: Path

    def folder_of(self, method: str) -> Path:
        """The folder of a method's run."""
        return next(self.folder / spec.run_id for spec in self.specs if spec.method.name == method)


def spec(name: str, tensor: int, precision: str, policy: dict[str, Any] | None = None) -> RunSpec:
    """A run of a method on two stages × two data-parallel ranks: one layer a stage, two micro-batches. One that chooses
    its period has one stage of four ranks.

    A policy with windows has eight steps: its ranks move in the seventh. Others do all that they do in four.
    """
    loaded = load(Method, name)
    method, stages = loaded.model_dump(), 1 if loaded.synchronisation.paced else 2  # type: ignore[attr-defined]
    own = method["policy"]
    if method["synchronisation"].get("fragments"):
        method["synchronisation"]["fragments"] = 2  # there are two layers
    own |= {key: value for key, value in NARROW.items() if own.get(key)} | (policy or {})
    plain = {
        "model": {"name": "tiny", "num_layers": 2, "hidden_size": 64, "num_heads": 4, "seq_length": 32},
        "method": method,
        "corpus": {"name": "zeros", "source": "stdlib", "tokenizer": {"kind": "bpe", "vocab_size": 2048}},
        "cluster": {
            "name": "dry", "device": "cuda", "device_model": "H100", "nodes": 1, "processes_per_node": 4 * tensor,
        },
        "parallel": {"tensor": tensor, "pipeline": stages, "data": 4 // stages},
        "training": {"iterations": 8, "micro_batch": 1, "global_batch": 4, "precision": precision}
        | ({"optimizer": method["optimizer"]} if method.get("optimizer") else {}),
        "seed": 1,
    }  # fmt: skip
    whole = validate(RunSpec, plain, name)
    return short(whole, STEPS if isinstance(whole.method.policy, WindowedSettings) else STEPS // 2)


@pytest.fixture(scope="session", autouse=True)
def _compiler() -> None:
    if device_guard.compiler() is None:
        pytest.skip("no C++ compiler")


def run(names: Iterable[str], folder: Path, ranks: list[int], tensor: int, precision: str, resumes: bool) -> Ran:
    """Run these methods on these ranks of two stages × two data-parallel ranks × `tensor`."""
    specs = [spec(name, tensor, precision) for name in sorted(names)]
    return Ran(specs, job.run(specs, folder, ranks, "H100" if precision == "fp32" else "A100", resumes), folder)


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What differs most, in fp32: all ranks, and each run once more from its first checkpoint."""
    return run(APART, tmp_path_factory.mktemp("four"), [0, 1, 2, 3], 1, "fp32", True)


@pytest.fixture(scope="session")
def two_of_four(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Half of the other methods in fp32: a rank of the first stage and one of the last."""
    return run((halves()[0] | WHOLE) - APART, tmp_path_factory.mktemp("two"), [0, 2], 1, "fp32", False)


@pytest.fixture(scope="session")
def two_of_eight(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The other half, and `APART`, in bf16 with tensor parallelism of two: as above."""
    return run((halves()[1] | APART) - WHOLE, tmp_path_factory.mktemp("eight"), [0, 4], 2, "bf16", False)
