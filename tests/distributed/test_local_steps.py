"""A wrapped optimizer in anybody's loop: the suite's losses, in islands too; resumed, killed, refused, documented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from edgc.core.base.errors import UserError
from edgc.local_steps import wrap
from tests.distributed.ranks import on_ranks
from tests.distributed.readme_scripts import bytes_of_script
from tests.distributed.test_stacked import APART

#: After the optimizer and before it, and islands, in every change's tests.
FEW = ("diloco", "dion", "diloco_int4:ddp", "diloco:fsdp:resume")
REST = (
    "delayed:resume",
    *("localsgd", "streaming_diloco:resume", "muloco:resume", "sparseloco:resume", "powergossip:resume"),
    *("demo:resume", "dion:resume", "onebit_adam:resume", "cdadam:resume", "delayed_predicted:resume", "gossip"),
    *("muloco:ddp", "demo:ddp:resume", "dion:ddp", "onebit_adam:ddp", "delayed_predicted:ddp", "streaming_diloco:ddp"),
    *("localsgd:fsdp", "gossip:fsdp:resume", "delayed_predicted:fsdp:resume", "delayed_corrected:fsdp"),
)
every_case = pytest.mark.parametrize(
    "case", [*FEW, *(pytest.param(case, marks=pytest.mark.tier("all")) for case in REST)]
)


@cache
def report(ranks: int, cases: tuple[str, ...]) -> dict:
    return on_ranks("local_steps.py", ranks, str(ranks), *cases)


def found_of(case: str) -> dict:
    return report(4, FEW if case in FEW else REST)[case]


@every_case
def test_losses_are_the_suites_up_to_rounding(case: str) -> None:
    found, apart = found_of(case), APART.get(case.split(":")[0], 2e-6)
    assert found["own"]["losses"] == pytest.approx(found["suite"]["losses"], rel=apart)
    assert found["own"]["validation"] == pytest.approx(found["suite"]["validation"], rel=apart)
    assert found["own"]["losses"][-1] < found["own"]["losses"][0]
    assert found["own"]["equal"], "the run ends with one model"


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in FEW else pytest.mark.tier("all")) for c in FEW + REST if "resume" in c]
)
def test_resumed_is_uninterrupted_bit_for_bit(case: str) -> None:
    found = found_of(case)
    assert found["resumed"] == found["own"]


@pytest.mark.tier("all")
def test_eight_processes_in_islands_of_two() -> None:
    cases = ("diloco:ddp", "diloco:fsdp")
    for case, found in report(8, cases).items():
        assert found["own"]["losses"] == pytest.approx(found["suite"]["losses"], rel=2e-6), case


@pytest.mark.tier("all")
def test_a_killed_replica_is_named_and_all_or_fewer_go_on(tmp_path: Path) -> None:
    methods = ("diloco_int4", "powergossip", "cdadam")
    found = on_ranks("local_steps_killed.py", 4, str(tmp_path), *methods, needs="edgc.local_steps")
    for method in methods:
        whole, killed, again, fewer = found[method].values()
        for said in killed:
            assert re.search(r"^step 1[345]: a replica does not answer \(.+\); start those that are", said["error"])
        assert [said["losses"] for said in again] == [said["losses"][10:] for said in whole], method
        assert [said["end"] for said in again] == [said["end"] for said in whole]
        assert len(fewer) == 3
        assert all("of 4, but this is rank" in said["warned"][0] for said in fewer)
        assert all(said["end"] == fewer[0]["end"] for said in fewer), method
        assert sum(said["losses"][-1] - said["losses"][0] for said in fewer) < 0, method


#: What every rank says; of two kinds where only one of them is wrong.
REFUSED = {
    "unknown_method": "no file configs/methods/no_such_method.yaml",
    "a_hook": "use edgc.torch_ddp.compress or edgc.fsdp.compress",
    "settings_differ": r"synchronisation\.every is 2 on rank 0, but 3 on rank 1",
    "clip_differs": r"clip_norm is 1\.0 on rank 0, but 2\.0 on rank 1",
    "one_rank_is_wrong": "iterations = 0: must be a whole number of at least 1",
    "a_part_of_a_step": r"iterations = 10\.5: must be a whole number",
    "a_compiled_island": "is a compiled DistributedDataParallel; give Distributed",
    "moments_of_before": "has made steps already, and method onebit_adam counts",
    "what_is_frozen_differs": "sum of bytes of what is frozen is .+ let replicas begin alike",
    "saved_as_shown": r"state_dict: called inside synchronised\(\)",
    "parameters_differ": r"sum of bits of 0\.bias is .+ let replicas begin alike",
    "other_model": r"0\.weight .+ \(8, 6\) on rank 0, but 0\.weight .+ \(9, 6\) on rank 1",
    "nothing_trained": "model: has no parameter that is trained",
    "not_all_held": r"does not hold 2\.bias, 2\.weight",
    "more_held": "holds 4 parameters, but the model trains 2",
    "held_twice": "holds 6 parameters, but the model trains 4",
    "wrapped_twice": "LocalSteps is no torch.optim.Optimizer that could be wrapped",
    "no_moments": "onebit_adam reads AdamW's moments, which SGD",
    "coupled_decay": "delayed_predicted reads AdamW's moments, which Adam",
    "no_muon": "muloco is made for Muon; give",
    "several_rates": r"has learning rates \[0\.001, 0\.1\], but method demo",
    "too_few_layers": "exchanges 4 parts of a model's layers in turn",
    "bf16": r"0\.bias \(torch\.bfloat16\), .+: must be fp32",
    "island_is_the_group": r"group: ranks \[.\] are in the island of rank . itself",
    "sharded_matrices": "dion needs whole matrices",
    "a_scaler": "GradScaler: .+ use bf16 autocast",
    "another_group": "add_param_group: .+ add it before",
    "frozen_later": r"exchanged, but not trained: 0\.bias, 0\.weight",
    "other_memory": r"replaced, or of another .+: 0\.bias, 0\.weight, 2\.bias, 2\.weight",
    "not_finite": "step 1: .+ of some replica were not finite",
    "past_the_end": "iterations = 2: all are done",
    "in_the_middle": "state_dict: called in the middle of step 0",
    "no_forward": "changes parameters before the forward, but got none",
    "compiled_later": r"changes parameters before .+ use torch.compile\(model\), not model.compile\(\), before wrap",
    "paced_without_a_forward": "times a step from the forward, but got none",
    "negative_clip": r"clip_norm = -1\.0: must be at least 0",
    "no_loss": "follows the training loss, but got none in step 0",
    "state_of_another_method": r"aggregator\.name dense, but this exchange has dct",
    "state_of_other_settings": r"synchronisation\.every 500, but this exchange has 2",
    "state_of_a_younger_setting": r"synchronisation\.mixing 0\.0, but this exchange has 0\.5",
    "state_of_another_optimizer": r"saved with kinds \['AdamW'\], but here it is \['SGD'\]",
    "states_of_different_steps": "exchange state's step",
}


@pytest.fixture(scope="module")
def refused() -> dict[str, Any]:
    return on_ranks("local_steps_refused.py", 2, needs="edgc.local_steps")


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_on_all_ranks_in_one_line(refused: dict[str, Any], case: str) -> None:
    for said in refused[case]:
        assert said is not None
        assert re.search(REFUSED[case], said), said
        assert "\n" not in said


def test_a_group_that_a_process_is_not_in_is_refused_there(refused: dict[str, Any]) -> None:
    assert refused.keys() - REFUSED.keys() == {"not_a_member"}
    assert refused["not_a_member"][0] is None
    assert "this process (rank 1) is not in it" in refused["not_a_member"][1]


class Assigns(nn.Module):
    """Its buffer is another tensor after every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of this process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def stepped(model: nn.Module, optimizer: Any, steps: int, given: torch.Tensor) -> None:
    for _ in range(steps):
        model(given).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("fused", [False, True])
def test_parameters_that_lie_otherwise_in_memory_are_updated_as_ever(alone: None, fused: bool) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last))
    plain, inner = (torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused) for model in models)
    given = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    stepped(models[0], plain, 3, given)
    stepped(models[1], wrap(models[1], inner, "localsgd", iterations=50), 3, given)
    torch.testing.assert_close(models[1].weight, models[0].weight, rtol=0, atol=1e-7)


def test_a_model_is_wrapped_anew_or_left_alone(alone: None) -> None:
    model, given = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.ones(5, 3)
    model[0].requires_grad_(False)
    first = wrap(model, torch.optim.SGD(model[1].parameters(), 0.1), iterations=2)
    stepped(model, first, 2, given)
    with pytest.raises(UserError, match=r"all are done.+ call close\(\)"):
        model(given)
    model.requires_grad_(True)
    second = wrap(model, torch.optim.SGD(model.parameters(), 0.1), iterations=9)
    stepped(model, second, 3, given)
    second.close()
    before = [p.clone() for p in model.parameters()]
    stepped(model, torch.optim.SGD(model.parameters(), 0.1), 20, given)
    assert all(not torch.equal(p, was) for p, was in zip(model.parameters(), before, strict=True))


def test_gossip_that_goes_on_shows_the_mean_again(alone: None) -> None:
    model, given = nn.Linear(3, 2), torch.ones(5, 3)
    short = wrap(model, torch.optim.SGD(model.parameters(), 0.1), "gossip", iterations=2)
    stepped(model, short, 2, given)
    assert short.exchange.synchronisation._met
    longer = wrap(model, torch.optim.SGD(model.parameters(), 0.1), "gossip", iterations=9)
    longer.load_state_dict(short.state_dict())
    stepped(model, longer, 1, given)
    assert not longer.exchange.synchronisation._met


def test_a_resumed_model_has_its_buffers(alone: None) -> None:
    models = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), Assigns()) for _ in range(2)]
    first, second = (wrap(model, torch.optim.AdamW(model.parameters()), iterations=4) for model in models)
    models[0](torch.randn(5, 3)).square().mean().backward()
    first.step()
    second.load_state_dict(first.state_dict())
    kept, restored = (model.state_dict() for model in models)
    assert kept["1.running_mean"].any()
    assert kept["2.mean"].any()
    assert all(torch.equal(kept[name], restored[name]) for name in kept)


@pytest.mark.tier("all")
def test_the_readme_s_script_runs_and_resumes(tmp_path: Path) -> None:
    sent, dense = bytes_of_script(2, 2, tmp_path)
    assert sent < dense / 20
