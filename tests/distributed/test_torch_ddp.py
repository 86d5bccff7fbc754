"""The DDP hook: between processes it averages, accumulates, resumes and survives overflows; alone, what it refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from edgc.core.base.errors import UserError
from edgc.suite.config import Method, load
from edgc.torch_ddp import compress
from tests.distributed.ranks import DDP, on_ranks
from tests.distributed.readme_scripts import bytes_of_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return on_ranks("ddp_hook.py", 2, needs=DDP)


def test_dense_is_plain_ddp_bit_for_bit(found: dict[str, Any]) -> None:
    """With buckets as views, with unused parameters, with a static graph, and accumulated under no_sync."""
    assert set(found["dense_equals_plain_ddp"].values()) == {0.0}
    assert found["accumulation_equals_plain_ddp"] == 0.0


def test_buckets_do_not_matter(found: dict[str, Any]) -> None:
    several = found["buckets_do_not_matter"]
    assert several["buckets"][0] >= 3
    assert several["buckets"][1] == 1
    assert several["distance"] < 1e-6
    assert several["equal"]


def test_what_a_step_loses_is_in_the_residual(found: dict[str, Any]) -> None:
    """Of what a rank does not use too, whose gradient is zero, and of what no rank uses, whose average is the rest."""
    assert len(found["nothing_is_lost"]) == 5
    assert max(found["nothing_is_lost"].values()) < 1e-7


def test_the_ledger_has_the_bytes_of_the_formula(found: dict[str, Any]) -> None:
    counted = found["bytes_are_counted"]
    assert counted["ledger"] == counted["formula"]
    assert set(counted["ranks"].values()) == {4}


def test_a_resumed_run_is_an_uninterrupted_one_bit_for_bit(found: dict[str, Any]) -> None:
    for method, (equal, *ranks) in found["resumed_is_uninterrupted"].items():
        assert equal, method
        assert None not in ranks, f"{method} did not compress"


@pytest.mark.parametrize("kind", ["parameters", "autocast"])
def test_bf16_trains_with_residuals_in_fp32(found: dict[str, Any], kind: str) -> None:
    own = found["low_precision"][kind]
    assert own["losses"][1] < own["losses"][0] - 0.1
    assert own["equal"]
    assert own["residuals"] == ["torch.float32"]


def test_the_scale_of_the_loss_does_not_matter(found: dict[str, Any]) -> None:
    assert found["scale_does_not_matter"]


@pytest.mark.parametrize("scaler", ["told", "not told"])
def test_an_overflow_costs_one_step_and_one_bucket_s_memory(found: dict[str, Any], scaler: str) -> None:
    own = found["overflows_are_forgotten"][scaler]
    assert own["skipped"]
    assert "layers.1.weight" not in own["kept"]
    assert {"layers.0.weight", "head.weight"} <= set(own["kept"])
    assert own["finite"]
    assert own["moved"]
    assert own["equal"]


def test_the_model_s_group_is_used(found: dict[str, Any]) -> None:
    assert found["the_model_s_group_counts"] == {"gradient": 0}  # groups of one rank exchange nothing


def test_costs_are_measured_and_not_charged_to_a_step(found: dict[str, Any]) -> None:
    assert found["costs_are_measured"] == {"charged": [], "trained": 6}


def test_a_policy_that_follows_the_loss_says_that_it_got_none(found: dict[str, Any]) -> None:
    assert "exchange.loss(loss)" in found["loss_is_missed"]


def test_megatron_is_not_needed(found: dict[str, Any]) -> None:
    assert not found["imports_megatron"]


def test_several_buckets_keep_one_order_of_collectives() -> None:
    done = on_ranks("several_buckets.py", 3, "edgc", needs=DDP)
    assert done["buckets"] >= 3
    assert done["equal"]


@pytest.mark.tier("all")
def test_pytorch_s_hook_does_not() -> None:
    """The reason for finishing in the last bucket's call. Once it passes, PyTorch has mended its hook."""
    with pytest.raises((AssertionError, subprocess.TimeoutExpired), match=r"a rank ended with status|timed out"):
        on_ranks("several_buckets.py", 2, "torch", needs=DDP, seconds=90)


def test_the_readme_s_script_runs_and_resumes(tmp_path: Path) -> None:
    sent, dense = bytes_of_script(0, 2, tmp_path)
    assert sent < dense / 5


@pytest.fixture
def ddp(tmp_path: Path) -> Iterator[DistributedDataParallel]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield DistributedDataParallel(torch.nn.Linear(8, 8))
    dist.destroy_process_group()


def test_what_cannot_be_is_refused(ddp: DistributedDataParallel, tmp_path: Path) -> None:
    def refused(*arguments: Any, iterations: int = 10, **changes: Any) -> str:
        with pytest.raises(UserError) as error:
            compress(*arguments, iterations=iterations, **changes)
        return str(error.value)

    assert "Linear is no torch.nn.parallel" in refused(ddp.module, "dense")
    assert "iterations = 0" in refused(ddp, "dense", iterations=0)
    assert "powersgd" in refused(ddp, "powerSGD")  # among what there is
    assert "cannot be read" in refused(ddp, tmp_path / "none.yaml")
    assert "rank = 0" in refused(ddp, "powersgd", policy={"rank": 0})
    assert "pipeline" in refused(ddp, "edgc_pipeline")
    assert "fused_embedding" in refused(ddp, "dense", fused_embedding=True)
    assert "placement.stages" in refused(ddp, "powersgd", placement={"stages": [1]})
    bags = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(8, 8, sparse=True)))
    assert "sparse=False" in refused(bags, "dense")
    half = DistributedDataParallel(torch.nn.Linear(8, 8).half())
    assert "fp16" in refused(half, "dense", scaler=GradScaler("cpu"))
    compress(ddp, "dense", iterations=10)
    assert "already" in refused(ddp, "dense")


def test_a_method_may_come_from_anywhere(
    ddp: DistributedDataParallel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    powersgd = load(Method, "powersgd", ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(powersgd.model_dump_json(), encoding="utf-8")
    for method in ("powersgd", "mine.yaml", tmp_path / "mine.yaml", powersgd, powersgd.model_dump()):
        model = DistributedDataParallel(torch.nn.Linear(8, 8))
        exchange = compress(model, method, iterations=10, policy={"rank": 2})
        assert [(d["parameter"], d["rank"]) for d in exchange.decisions()] == [("weight", 2)]


def test_a_state_of_a_loop_with_another_scaler_is_refused(ddp: DistributedDataParallel) -> None:
    told = compress(DistributedDataParallel(torch.nn.Linear(8, 8)), "powersgd", iterations=10, scaler=GradScaler("cpu"))
    with pytest.raises(UserError, match=r"without a scaler, .+ give compress the same scaler="):
        told.load_state_dict(compress(ddp, "powersgd", iterations=10).state_dict())


def test_of_another_rank_only_step_and_policy_are_taken(ddp: DistributedDataParallel) -> None:
    exchange = compress(ddp, "powersgd", iterations=10)
    with pytest.warns(UserWarning, match="rank 1 of 2, but this is rank 0 of 1"):
        exchange.load_state_dict(exchange.own_state() | {"rank": 1, "size": 2, "step": 7})
    assert exchange.step == 7
