"""What a plan says at the edges: ranks that compress nothing, one stage, another optimizer, refusals."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.core.policies.amounts import Rank
from edgc.core.policies.policy import Decision
from edgc.suite.cluster.forecasts import forecast
from edgc.suite.cluster.question import Question, chosen, of_method
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.whole_run import WholeRun, exchange_cost
from edgc.suite.config import Cluster, Method, load

SLOW = Question("gpt2-345m", "h100x64", link="25gbit", precision="bf16")


def model_of(name: str, question: Question = SLOW) -> StepModel:
    scenario = question.scenario()
    return StepModel(of_method(scenario.spec, load(Method, name)), scenario.calibration, scenario.precision)


def test_r_max_is_no_rank_at_which_everything_travels_dense() -> None:
    model = model_of("edgc")
    cost = exchange_cost(model, 0)
    assert cost is not None
    assert all(model.compresses(0, Decision(Rank(rank))) for rank, _ in cost.points)
    assert forecast(SLOW.scenario(), chosen(["dense", "edgc"])).methods[-1].candidate


def test_with_one_stage_the_embedding_is_exchanged_with_the_rest() -> None:
    whole, fused = (WholeRun.of(model_of(name), SLOW.scenario().trajectory) for name in ("edgc", "edgc_pipeline"))
    assert fused.compressed.step.payload_bytes == pytest.approx(whole.compressed.step.payload_bytes)


def test_a_methods_own_optimizer_is_no_time_of_its_exchange() -> None:
    fast = Question("gpt2-345m", "h100x64", training={"global_batch": 256})
    found = {each.method: each for each in forecast(fast.scenario(), chosen(["dense", "muloco"])).methods}
    dense, muloco = found["dense"], found["muloco"]
    assert muloco.floor_s > dense.floor_s
    assert muloco.utilisation_percent == pytest.approx(100 * muloco.floor_s / muloco.iteration_s, rel=0.01)


@pytest.mark.parametrize("name", ["delayed", "powergossip", "diloco"])
def test_without_shards_nothing_is_gathered(name: str) -> None:
    step = WholeRun.of(model_of(name), SLOW.scenario().trajectory).compressed.step
    assert all(row["what"] != "gather" for row in step.drawn())


def test_a_known_set_up_has_its_experiments_vocabulary() -> None:
    assert Question("gpt2-nano", "links-dp4").spec().corpus.tokenizer.vocab_size == 2048


def test_memory_leaves_out_what_nobody_asked_for_and_cannot_be() -> None:
    asked = ["plan", "--model", "gpt2-124m", "--sites", "8", "--shard", "optimizer", "--memory"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "synchronisation dion" in CliRunner().invoke(app, [*asked, "--method", "dion"]).output


@pytest.mark.parametrize("sites", [3, 5, 12])
def test_any_number_of_sites_has_a_plan(sites: int) -> None:
    found = Question("gpt2-2.5b", "internet-a100x32", sites=sites).spec()
    assert found.training.global_batch % (found.training.micro_batch * found.parallel.data) == 0


def test_links_that_are_shaped_are_told_by_their_rate() -> None:
    assert load(Cluster, "links-dp4-200mbit").gbit == 0.2
