"""Laws of shards in the cluster model: what is sent, what it takes, and what a rank holds."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.core.base.errors import UserError
from edgc.suite.cluster.memory import CATEGORIES, check_memory, memory
from edgc.suite.cluster.parameters import count, stage_parameters, vocabulary
from edgc.suite.cluster.question import Question, at_rate, calibration_of, of_method
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.step_outcome import Step
from edgc.suite.config import Calibration, Method, RunSpec, load

SHARDS = ("none", "optimizer", "full")
LINK = 32e9 / 8  #: bytes/s


@cache
def on_32(shard: str, wire: str) -> RunSpec:
    degrees, batches = {"tensor": 1, "pipeline": 1, "data": 32}, {"micro_batch": 1, "global_batch": 64}
    shards = {"shard": shard, "parameter_wire": wire}
    return Question("gpt2-345m", "v100x32", parallel=degrees, training=batches | shards).spec()


@cache
def parameters() -> int:
    asked = on_32("none", "exact")
    return count(stage_parameters(asked.model, vocabulary(asked), 1, 1, 0))


def spec(shard: str, ranks: int = 32, wire: str = "exact", method: str = "dense", **training: Any) -> RunSpec:
    """GPT-2 of 345 million parameters on one V100 a node, data-parallel, two micro-batches."""
    batches = {"micro_batch": 1, "global_batch": 2 * ranks} | training
    asked = on_32(shard, wire)
    cluster = asked.cluster.model_copy(update={"nodes": ranks, "processes_per_node": 1})
    parallel = asked.parallel.model_copy(update={"data": ranks})
    trained = asked.training.model_copy(update=batches)
    update = {"cluster": cluster, "parallel": parallel, "training": trained, "method": load(Method, method)}
    return at_rate(asked.model_copy(update=update), 32)


def rates(**changed: Any) -> Calibration:
    """Links without latency at their full rate; memory and launches that take no time."""
    ideal = {"link_latency_us": 0.0, "link_efficiency": 1.0, "endpoint_gbyte_s": None}
    ideal |= {"memory_gbyte_s": 1e12, "launch_us": 0.0}
    return calibration_of(spec("none").cluster).model_copy(update=ideal | changed)


def model(shard: str, ranks: int = 32, wire: str = "exact", method: str = "dense", **changed: Any) -> StepModel:
    return StepModel(spec(shard, ranks, wire, method), rates(**changed))


def step(shard: str, *arguments: Any, **changed: Any) -> Step:
    return model(shard, *arguments, **changed).step()


@pytest.mark.parametrize("ranks", [2, 8, 32])
def test_a_reduce_scatter_and_a_gather_send_what_an_all_reduce_sends(ranks: int) -> None:
    whole, shards = step("none", ranks), step("optimizer", ranks)
    sent = (ranks - 1) / ranks * 4 * parameters()
    assert whole.wire == pytest.approx(2 * sent / LINK)
    assert shards.wire == pytest.approx(sent / LINK)
    assert shards.gather == shards.gather_exposed == pytest.approx(sent / LINK, rel=1e-6)
    assert shards.payload_bytes == 4 * parameters(), "of gradients only"
    assert shards.latencies["everything"] == pytest.approx(whole.latencies["everything"], rel=1e-6)


@pytest.mark.parametrize(("wire", "width"), [("bf16", 2), ("int8", 1 + 2 / 256)])
def test_a_gather_is_as_wide_as_its_wire(wire: str, width: float) -> None:
    assert step("optimizer", 32, wire).gather == pytest.approx(width / 4 * step("optimizer").gather, rel=1e-4)
    assert step("full", 32, wire).gather == pytest.approx(width / 4 * step("full").gather, rel=1e-3)


def test_full_shards_gather_layers_twice_a_micro_batch_and_the_root_once() -> None:
    asked = spec("full")
    layers = asked.model.num_layers * 12 * asked.model.hidden_size**2  # weights; biases and norms are a thousandth
    root = parameters() - layers
    sent = asked.micro_batches * (2 * layers + root) * 4 * 31 / 32
    assert step("full").gather == pytest.approx(sent / LINK, rel=0.002)


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("method", ["dense", "dense_bf16_overlap", "powersgd", "topk"])
def test_the_parts_of_a_step_add_up(shard: str, method: str) -> None:
    found = step(shard, 32, "exact", method, memory_gbyte_s=900.0)
    parts = (found.compute, found.bubble, found.embedding, found.optimizer, found.exposed, found.gather_exposed)
    assert found.seconds == pytest.approx(sum(parts))
    floor = model(shard, 32, "exact", method, memory_gbyte_s=900.0).floor
    assert found.seconds > floor >= found.compute + found.gather_exposed, "the floor keeps the gathers"
    assert (found.gather > 0) == (shard != "none")


@pytest.mark.parametrize("shard", ["optimizer", "full"])
def test_one_rank_has_nothing_to_share_out(shard: str) -> None:
    assert step(shard, 1) == step("none", 1)
    assert memory(spec(shard, 1), "fp32") == memory(spec("none", 1), "fp32")


def test_each_rank_does_its_part_of_the_optimizers_arithmetic() -> None:
    whole, shards = (step(shard, 8, memory_gbyte_s=900.0).optimizer for shard in SHARDS[:2])
    assert shards == pytest.approx(whole / 8)


def test_muon_adds_five_iterations_of_products_with_every_hidden_matrix() -> None:
    """A layer has h × h, 3h × h and two of 4h × h. Memory and launches take no time here, so AdamW takes none."""
    own, plain = (StepModel(spec("none", optimizer=name), rates()).step().optimizer for name in ("muon", "adamw"))
    model, calibration = spec("none").model, rates()
    of_a_layer = sum(4 * n + 2 for n in (1, 3, 4, 4)) * model.hidden_size**3
    rate = 1e12 * calibration.gemm_tflops["fp32"] * calibration.gemm_efficiency
    assert own == pytest.approx(5 * model.num_layers * of_a_layer / rate, rel=1e-6)
    assert plain < own / 1000


def test_streams_hide_full_gathers_on_gpus_only() -> None:
    asked = spec("full")
    on_cpus = asked.model_copy(update={"cluster": asked.cluster.model_copy(update={"device": "cpu"})})
    serial, fast = StepModel(on_cpus, rates()).step(), StepModel(at_rate(asked, 3200), rates()).step()
    assert serial.gather_exposed == pytest.approx(serial.gather)
    assert serial.exposed == pytest.approx(serial.encode + serial.wire + serial.decode)
    assert fast.gather_exposed < 0.2 * fast.gather


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("method", ["dense", "powersgd"])
def test_memory_falls_with_every_kind_of_shard_and_with_ranks(method: str, micro_batches: int, precision: str) -> None:
    def of(shard: str, ranks: int) -> float:
        return memory(spec(shard, ranks, method=method, global_batch=micro_batches * ranks), precision).total

    whole, optimizer, full = ([of(shard, ranks) for ranks in (4, 8, 16, 32)] for shard in SHARDS)
    assert len(set(whole)) == 1
    assert all(a > b > c for a, b, c in zip(whole, optimizer, full, strict=True))
    for each in (optimizer, full):
        assert each == sorted(each, reverse=True)
        assert len(set(each)) == len(each)


def test_what_is_sharded_is_held_once_by_all_ranks_together() -> None:
    whole, optimizer, full = (memory(spec(shard, global_batch=32, method="topk"), "fp32") for shard in SHARDS)
    assert 32 * optimizer.optimizer == pytest.approx(whole.optimizer)
    for name in ("parameters", "gradients"):
        assert getattr(optimizer, name) == getattr(whole, name)
        assert 32 * getattr(full, name) == pytest.approx(getattr(whole, name), rel=0.001)
    assert whole.method == optimizer.method == full.method > 0, "a residual is whole"
    assert whole.buffers == optimizer.buffers == 0 < full.buffers
    accumulated = memory(spec("full", global_batch=64), "fp32")
    assert accumulated.gradients == whole.gradients, "of several micro-batches they add up unsharded"


@pytest.mark.parametrize(("wire", "precision", "kept"), [("bf16", "fp32", 4), ("bf16", "bf16", 0), ("int8", "bf16", 2)])
def test_owners_keep_what_the_wire_rounds(wire: str, precision: str, kept: int) -> None:
    assert memory(spec("optimizer", 32, wire), precision).buffers == pytest.approx(kept * parameters() / 32, rel=0.001)


def test_what_does_not_fit_is_told_by_category() -> None:
    with pytest.raises(UserError, match="fit") as refused:
        check_memory(spec("full", micro_batch=64, global_batch=64 * 32), rates(), "fp32")
    assert all(f"for {name}" in str(refused.value) for name in CATEGORIES)
    assert "use more data-parallel ranks" in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shard", "full", "--tensor", "4"], "parallel.tensor 4 and .pipeline 1; use 1 for both"),
        (["--shard", "half"], "training.shard = 'half': Input should be 'none', 'optimizer' or 'full'"),
        (["--shard", "optimizer", "--parameter-wire", "fp8"], "Input should be 'exact', 'bf16' or 'int8'"),
        (["--parameter-wire", "int8"], "parameters travel only where they are sharded; set training.shard"),
        (["--shard", "optimizer", "--method", "diloco"], "method diloco has synchronisation outer"),
        (["--shard", "optimizer", "--method", "delayed"], "and a rank updates a part of them only; use every_step"),
        (["--shard", "full", "--memory", "--method", "delayed"], "method delayed has synchronisation delayed"),
    ],
)
def test_bad_questions_are_refused(arguments: list[str], said: str) -> None:
    asked = CliRunner().invoke(app, ["plan", "--model", "gpt2-345m", "--cluster", "v100x32", *arguments])
    assert asked.exit_code == 2
    assert said in " ".join(asked.output.split())


def test_muon_and_what_a_method_updates_itself_need_fewer_moments() -> None:
    asked = spec("none")
    shapes = stage_parameters(asked.model, vocabulary(asked), 1, 1, 0)
    hidden = count({name: shape for name, shape in shapes.items() if len(shape) == 2 and "layers." in name})
    adamw = memory(asked, "fp32").optimizer
    assert adamw == 8 * count(shapes)
    assert adamw - memory(spec("none", optimizer="muon"), "fp32").optimizer == 4 * hidden
    assert adamw - memory(of_method(asked, load(Method, "dion")), "fp32").optimizer == 8 * hidden
    assert memory(of_method(asked, load(Method, "demo")), "bf16").optimizer == 4 * count(shapes)
