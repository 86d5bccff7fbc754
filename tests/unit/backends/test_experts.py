"""A layer of experts is what the router's softmax mixes; what a replica does not use counts as zero in the average."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.suite.backends.megatron.process import Place
from edgc.suite.backends.plain_gpt import Experts, PlainGPT
from edgc.suite.backends.stacked_engine import StackedEngine
from edgc.suite.cluster.parameters import stage_count, stage_parameters
from edgc.suite.config import Method, Model, RunSpec, load, load_experiment
from tests.fixtures.configs import put, write_configs

VOCAB, SEQ, REPLICAS = 128, 8, 2
SIZE: dict[str, Any] = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "seq_length": SEQ}
MOE = Model(name="moe", experts=8, **SIZE)


def layer(top_k: int, experts: int = 4) -> Experts:
    torch.manual_seed(0)
    return Experts(16, experts, top_k)


def test_equal_experts_are_one_mlp_weighted_by_what_is_chosen() -> None:
    """With all of them chosen the weights are a whole softmax."""
    x = torch.randn(3, 5, 16)
    for top_k in (1, 2, 4):
        mixture = layer(top_k)
        first, *others = mixture.experts["local_experts"]  # type: ignore[misc]
        for other in others:
            other.load_state_dict(first.state_dict())
        p = mixture.router(x).softmax(-1)
        expected = first(x) * p.topk(top_k).values.sum(-1, keepdim=True)
        torch.testing.assert_close(mixture(x)[0], expected)


def test_the_balance_is_one_where_tokens_are_spread_evenly_and_largest_where_one_expert_has_all() -> None:
    mixture = layer(1)
    with torch.no_grad():
        mixture.router.weight.zero_()
        mixture.router.weight[:, :4] = 40 * torch.eye(4)
        assert float(mixture(torch.eye(16)[[0, 1, 2, 3]])[1]) == pytest.approx(1)
        assert float(mixture(torch.eye(16)[[2, 2, 2, 2]])[1]) == pytest.approx(4)


def test_the_balance_moves_the_router_and_is_not_in_the_loss() -> None:
    tokens = torch.randint(VOCAB, (4, SEQ + 1), generator=torch.Generator().manual_seed(1))

    def trained(balance: float) -> tuple[float, Tensor, Tensor]:
        model = PlainGPT(MOE.model_copy(update={"balance": balance}), VOCAB, seed=1)
        loss = model(tokens)
        loss.backward()
        last: Any = model.decoder["layers"][1]  # type: ignore[index]
        used = next(e for e in last.mlp.experts["local_experts"] if e.linear_fc1.weight.grad is not None)
        return float(loss.detach()), last.mlp.router.weight.grad, used.linear_fc1.weight.grad

    (without, router, expert), (with_it, moved, same) = trained(0.0), trained(1.0)
    assert without == with_it
    assert not torch.allclose(router, moved)
    assert torch.equal(expert, same)  # the last layer's own balance knows no expert


@pytest.mark.parametrize("model", [MOE, Model(name="dense", **SIZE)])
def test_parameters_are_those_that_are_foretold(model: Model) -> None:
    made = {name: tuple(p.shape) for name, p in PlainGPT(model, VOCAB, seed=1).named_parameters()}
    assert made == stage_parameters(model, VOCAB, 1, 1, 0)
    assert sum(np.prod(shape) for shape in made.values()) == stage_count(model, VOCAB, 1, 1, 0)


def spec(method: dict[str, Any], **model: Any) -> RunSpec:
    named = {"name": "m", "title": "M", "source": "S", "summary": "A sentence."}
    cluster = {"name": "c", "device": "cpu", "device_model": "CPU", "nodes": 1, "processes_per_node": 1}
    training = {"iterations": 8, "micro_batch": 1, "global_batch": REPLICAS, "clip": 0}
    plain = {
        "model": MOE.model_dump(), "method": named | {"policy": {"name": "fixed"}}, "seed": 1, "loop": "stacked",
        "corpus": {"name": "t", "source": "stdlib", "tokenizer": {"kind": "bpe", "vocab_size": 512}},
        "cluster": cluster, "parallel": {"data": REPLICAS}, "training": training,
    }  # fmt: skip
    return validate(RunSpec, merge(merge(plain, {"method": method}), {"model": model}), "run")


def replica_tokens(step: int, replica: int) -> np.ndarray:
    """A replica sees one token only, so that its router chooses few experts."""
    return np.full((1, SEQ + 1), (7 * step + 31 * replica + 3) % VOCAB, dtype=np.int64)


def alone(parameters: dict[str, Tensor], step: int, replica: int) -> dict[str, Tensor]:
    model = PlainGPT(MOE, VOCAB, seed=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(parameters[name])
    model(torch.from_numpy(replica_tokens(step, replica))).backward()
    return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()}


class Seen:
    """What a replica's exchange averages."""

    def __init__(self) -> None:
        self.averages: dict[str, Tensor] = {}

    def local(self, step: int, gradients: Any) -> None:
        """Nothing."""

    def average(self, step: int, gradients: Any) -> None:
        self.averages = {g.name: g.tensor.clone() for g in gradients}


@cache
def engine_of(name: str) -> StackedEngine:
    methods: dict[str, dict[str, Any]] = {
        "dense": {"aggregator": {"name": "dense"}},
        "powersgd": {"aggregator": {"name": "lowrank"}, "policy": {"rank": 2}},
        "powersgd_8_4": {
            "aggregator": {"name": "lowrank", "left_wire": "int8", "right_wire": "int4"},
            "policy": {"rank": 2},
        },
        "int4": {"aggregator": {"name": "few_bits"}, "policy": {"bits": 4}},
        "ramp": {
            "aggregator": load(Method, "ramp").aggregator.model_dump(),
            "policy": {"name": "ramp", "share": 0.3, "window": 2},
        },
    }
    return StackedEngine(spec(methods[name]), Place(0, 1, 0, 1, 0, 0, torch.device("cpu")), VOCAB)


@pytest.mark.parametrize("name", ["dense", "powersgd", "powersgd_8_4", "int4", "ramp"])
def test_an_expert_that_only_some_replicas_use_counts_as_zero_on_the_others(name: str) -> None:
    """mean(gradient + residual before) = average + mean(residual after), for experts that one, both or none used."""
    engine, used = engine_of(name), set()
    for step in range(6):
        first = engine._replicas[0]
        exchanges = [replica.synchronisation.exchange for replica in engine._replicas]
        parameters = {n: p.clone() for n, p in first.parameters.items()}
        before = [{n: _residual(e, n) for n in parameters} for e in exchanges]
        exchanges[0].probe = seen = Seen()
        own = [alone(parameters, step, replica) for replica in range(REPLICAS)]
        engine.train_step(step, np.stack([replica_tokens(step, r)[None] for r in range(REPLICAS)]), 1e-3)
        engine.end_step(torch.zeros(()))
        for n, average in seen.averages.items():
            lost = [_residual(e, n) - kept[n] for e, kept in zip(exchanges, before, strict=True)]
            mean = sum(g[n] - rest for g, rest in zip(own, lost, strict=True)) / REPLICAS
            torch.testing.assert_close(average, mean, rtol=1e-4, atol=1e-6)
            if "experts" in n:
                used.add(tuple(bool(g[n].any()) for g in own))
    assert used == {(False, False), (True, False), (False, True), (True, True)}


def _residual(exchange: Any, name: str) -> Tensor:
    kept = exchange.aggregator.residual(name)
    return torch.zeros(()) if kept is None else kept.clone()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"experts": 1}, "experts 1: a router has nothing to choose; use 0, or at least 2"),
        ({"experts": 2, "top_k": 3}, "top_k 3 must be at most experts 2"),
        ({"experts": 0, "top_k": 2}, "top_k 2 must be at most experts 0"),
    ],
)
def test_models_that_cannot_be_are_refused(change: dict[str, int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        spec({"aggregator": {"name": "dense"}}, **change)


def test_loops_and_tasks_that_know_no_experts_refuse_them(tmp_path: Path) -> None:
    experts, tasks = put("models/tiny:experts", 4), put("tasks", [])
    with pytest.raises(
        UserError, match=r"model\.experts 4: loop megatron has no mixture of experts; use loop: stacked"
    ):
        load_experiment("trial", write_configs(tmp_path / "a", experts))
    stacked = [put("loop", "stacked"), put("parallel", {"data": 2}), put("clusters/four:processes_per_node", 1)]
    few = put("methods", ["dense"])
    with pytest.raises(UserError, match="tasks cloze: tiny has experts, and is not exported as a GPT-2"):
        load_experiment("trial", write_configs(tmp_path / "b", experts, few, *stacked))
    assert load_experiment("trial", write_configs(tmp_path / "c", experts, few, tasks, *stacked)).runs(tmp_path / "c")
