"""Which implementation of an operation runs, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.core.ops import backend
from edgc.core.ops.orthonormalise import orthonormalise, reference
from edgc.suite.config import Cluster, RunSpec, load
from edgc.suite.config.experiment import load_experiment

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture(autouse=True)
def _afterwards() -> Iterator[None]:
    yield
    backend.choose("auto", "cpu")


def test_auto_runs_torch_on_a_cpu() -> None:
    (basis,) = orthonormalise([torch.full((4, 1), 3.0)])
    assert basis.abs().tolist() == [[0.5]] * 4


def test_triton_without_a_gpu_or_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UserError, match=r"kernels = triton: .*TRITON_INTERPRET.*use kernels = auto"):
        backend.choose("triton", "cpu")


def test_triton_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"not installed: pip install .edgc\[cuda\]., or make setup BUILD=cuda"):
        backend.choose("triton", "cuda")


def test_on_a_gpu_auto_takes_triton_for_one_known_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "missing", lambda device: None)

    def on_gpu(*kinds: torch.dtype) -> list[SimpleNamespace]:
        return [SimpleNamespace(is_cuda=True, dtype=kind) for kind in kinds]

    decide = backend._on_triton
    assert decide(on_gpu(torch.float32, torch.float32))  # type: ignore[arg-type]
    assert decide(on_gpu(torch.bfloat16))  # type: ignore[arg-type]
    assert not decide(on_gpu(torch.float32, torch.bfloat16))  # type: ignore[arg-type]
    assert not decide(on_gpu(torch.float64))  # type: ignore[arg-type]
    backend.choose("torch", "cuda")
    assert not decide(on_gpu(torch.float32))  # type: ignore[arg-type]
    backend.choose("triton", "cuda")
    with pytest.raises(UserError, match="gradients of bfloat16, float32; allowed: one of"):
        decide(on_gpu(torch.float32, torch.bfloat16))  # type: ignore[arg-type]


def test_the_chosen_tensors_decide_and_the_kernel_gets_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    kernels = SimpleNamespace(orthonormalise=lambda *arguments: seen.append(arguments))
    monkeypatch.setattr(backend.importlib, "import_module", lambda name: seen.append(name) or kernels)
    monkeypatch.setattr(backend, "_on_triton", lambda tensors: tensors == ["factor"])
    operation = backend.dispatched(reference.orthonormalise, of=lambda factors, *_: factors)
    operation(["factor"], "more")  # type: ignore[list-item]
    assert seen == ["edgc.core.ops.orthonormalise.triton", (["factor"], "more")]


def test_a_cluster_of_cpus_refuses_triton_before_anything_starts() -> None:
    cpu = load(Cluster, "laptop", CONFIGS).model_dump()
    with pytest.raises(UserError, match="kernels triton needs device cuda"):
        validate(Cluster, merge(cpu, {"kernels": "triton"}), "laptop")


def test_kernels_that_were_asked_for_make_another_run_and_auto_does_not() -> None:
    spec = load_experiment("smoke", CONFIGS).runs(CONFIGS)[0]
    plain = spec.model_dump()
    assert "kernels" not in spec.identity()["cluster"]
    chosen = validate(RunSpec, merge(plain, {"cluster": {"kernels": "torch"}}), "spec")
    assert chosen.identity()["cluster"]["kernels"] == "torch"
    assert chosen.spec_id != spec.spec_id
