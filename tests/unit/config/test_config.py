"""Settings: the files of the repository, what an override means, and what an experiment is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge
from edgc.suite.config import (
    KINDS,
    Experiment,
    Method,
    Model,
    available,
    load,
    load_experiment,
)
from tests.fixtures.configs import put, trial_runs

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.tier("test")
def test_every_file_in_the_repository_loads() -> None:
    for kind in KINDS:
        names = available(kind, CONFIGS)
        assert names, f"no {kind.__name__}"
        for name in names:
            assert load(kind, name, CONFIGS).name == name
    for name in available(Experiment, CONFIGS):
        runs = load_experiment(name, CONFIGS).runs(CONFIGS)
        assert len({run.run_id for run in runs}) == len(runs) > 0


@pytest.mark.parametrize(
    ("model", "parameters"),
    [("gpt2-124m", 124e6), ("gpt2-345m", 355e6), ("gpt2-1.3b", 1.3e9), ("gpt2-2.5b", 2.5e9), ("gpt2-12.1b", 12.1e9)],
)
def test_models_have_the_size_they_are_called_by(model: str, parameters: float) -> None:
    m = load(Model, model, CONFIGS)
    counted = m.num_layers * 12 * m.hidden_size**2 + (50257 + m.seq_length) * m.hidden_size
    assert counted == pytest.approx(parameters, rel=0.05)


@pytest.mark.parametrize(
    ("name", "gpus", "degrees", "batch"),
    [("paper-345m", 16, (2, 4, 2), 64), ("paper-v100", 32, (4, 4, 2), 64), ("paper-h100", 64, (4, 4, 4), 128)],
)
def test_the_papers_setups(name: str, gpus: int, degrees: tuple[int, int, int], batch: int) -> None:
    for run in load_experiment(name, CONFIGS).runs(CONFIGS):
        assert run.cluster.processes == gpus
        assert (run.parallel.tensor, run.parallel.pipeline, run.parallel.data) == degrees
        assert (run.training.micro_batch, run.training.global_batch, run.model.seq_length) == (4, batch, 1024)
        assert (run.training.iterations, run.training.decay_iterations) == (230_000, 320_000)


def test_the_matrix_is_models_by_methods_by_seeds(tmp_path: Path) -> None:
    runs = trial_runs(tmp_path, put("seeds", [3, 1]))
    expected = [("tiny", method, seed) for method in ("dense", "powersgd", "topk", "edgc") for seed in (3, 1)]
    assert [(run.model.name, run.method.name, run.seed) for run in runs] == expected
    assert {run.micro_batches for run in runs} == {2}  # 8 sequences, 2 ranks, 2 a micro-batch


def test_an_override_changes_its_method_alone(tmp_path: Path) -> None:
    changed = put("overrides.topk", {"training": {"lr": 1e-3}, "method": {"policy": {"ratio": 0.5}}})
    before, after = trial_runs(tmp_path / "before"), trial_runs(tmp_path / "after", changed)
    assert {a.method.name for a, b in zip(after, before, strict=True) if a.spec_id != b.spec_id} == {"topk"}
    topk = after[2]
    assert (topk.training.lr, topk.training.iterations) == (1e-3, 10)
    assert topk.method.policy.ratio == 0.5  # type: ignore[attr-defined]


def test_a_method_brings_the_optimizer_that_it_is_made_for(tmp_path: Path) -> None:
    runs = trial_runs(tmp_path, put("methods/topk:optimizer", "muon"))
    assert {run.method.name: run.training.optimizer for run in runs} == {
        "dense": "adamw", "powersgd": "adamw", "topk": "muon", "edgc": "adamw",
    }  # fmt: skip


def test_every_method_is_trained_on_a_gpu() -> None:
    several_stages = {"edgc_pipeline", "optimus_cc_stages"}
    trainable = {name for name in available(Method) if not load(Method, name).control} - several_stages
    for name in ("gpu1", "gpu2"):
        experiment = load_experiment(name)
        assert set(experiment.methods) == trainable
        assert experiment.models == ("gpt2-124m",)


def test_merge_goes_into_groups_and_drops_them_when_their_name_changes() -> None:
    base = {"a": {"x": 1, "y": {"z": 2, "w": 3}}, "policy": {"name": "fixed", "rank": 4}, "b": [1, 2]}
    assert merge(base, {"a": {"y": {"z": 5}}}) == {**base, "a": {"x": 1, "y": {"z": 5, "w": 3}}}
    assert merge(base, {"policy": {"rank": 8}})["policy"] == {"name": "fixed", "rank": 8}
    assert merge(base, {"policy": {"name": "fixed", "rank": 8}})["policy"] == {"name": "fixed", "rank": 8}
    assert merge(base, {"policy": {"name": "edgc", "max_rank": 8}})["policy"] == {"name": "edgc", "max_rank": 8}
    variant = {"low": {"of": "topk", "title": "Low", "policy": {"ratio": 0.5}}}
    assert merge(variant, {"low": {"of": "topk", "title": "L"}})["low"] == variant["low"] | {"title": "L"}
    assert merge(variant, {"low": {"of": "edgc", "title": "L"}})["low"] == {"of": "edgc", "title": "L"}
    assert merge(base, {"a": {"of": "b"}})["a"] == base["a"] | {"of": "b"}, "a group that is not of anything"
    assert merge(base, {"b": [3], "a": 7}) == {**base, "b": [3], "a": 7}
    assert merge(base, {}) == base
    assert base["a"] == {"x": 1, "y": {"z": 2, "w": 3}}, "the base is not touched"


def test_every_setting_is_described() -> None:
    def fields(schema: dict[str, Any]) -> None:
        for group in (schema, *schema.get("$defs", {}).values()):
            for name, field in group.get("properties", {}).items():
                assert field.get("description") or "const" in field, f"{group['title']}.{name} has no description"

    for kind in KINDS:
        fields(kind.model_json_schema())


def test_an_experiment_may_be_another_with_changes(tmp_path: Path) -> None:
    smoke, lab = (load(Experiment, name).model_dump() for name in ("smoke", "smoke-lab"))
    own = {"name", "of", "parts", "title", "shows", "cluster"}
    assert {key: value for key, value in smoke.items() if key not in own} == {
        key: value for key, value in lab.items() if key not in own
    }
    assert lab["cluster"] == "lab"
    for name, of in (("a", "b"), ("b", "a"), ("c", "nobody")):
        (tmp_path / "experiments").mkdir(exist_ok=True)
        (tmp_path / "experiments" / f"{name}.yaml").write_text(f"name: {name}\nof: {of}\n")
    with pytest.raises(UserError, match="a of b of a never ends"):
        load(Experiment, "a", tmp_path)
    with pytest.raises(UserError, match=r"of = 'nobody': no file .*there are: a, b, c"):
        load(Experiment, "c", tmp_path)
