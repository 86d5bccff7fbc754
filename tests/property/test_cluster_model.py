"""Laws of the cluster model: what can only get slower or faster, and limits where the answer is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from edgc.cli import app
from edgc.core.base.errors import UserError
from edgc.core.base.files import write_jsonl
from edgc.core.base.settings import merge
from edgc.core.policies.amounts import DENSE, ON, Amount, Bits, Rank
from edgc.core.policies.policy import Decision
from edgc.suite.cluster.forecasts import Forecasts, forecast
from edgc.suite.cluster.memory import check_memory, memory, memory_by_stage
from edgc.suite.cluster.question import Question, Scenario, at_rate, calibration_of, chosen, of_method
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.step_outcome import Step
from edgc.suite.cluster.trajectory import Parametric, Recorded
from edgc.suite.cluster.whole_run import WholeRun
from edgc.suite.config import Calibration, Method, RunSpec, load
from edgc.suite.config.model import TIED

STAGES = 4


@cache
def spec(method: str = "powersgd", **degrees: int) -> RunSpec:
    asked = Question("gpt2-2.5b", "v100x32", parallel=degrees).spec()
    return asked.model_copy(update={"method": load(Method, method)})


@cache
def rates() -> Calibration:
    return calibration_of(spec().cluster)


RANK_32 = Rank(32)


def step(method: str = "powersgd", rank: Amount = RANK_32, gbit: float = 32, **changed: Any) -> Step:
    model = StepModel(at_rate(spec(method), gbit), rates().model_copy(update=changed))
    return model.step([Decision(rank)] * STAGES)


@settings(max_examples=30)
@given(
    st.sampled_from(["dense", "dense_bf16", "dense_bf16_overlap", "powersgd", "powersgd_bf16"]), st.floats(0.01, 1000)
)
def test_no_step_is_faster_than_its_floor_and_a_faster_link_is_never_slower(method: str, gbit: float) -> None:
    slow, fast = step(method, gbit=gbit), step(method, gbit=2 * gbit)
    floor = StepModel(at_rate(spec(method), gbit), rates()).floor
    assert slow.seconds >= floor
    assert floor >= slow.compute
    assert fast.seconds <= slow.seconds
    assert fast.wire <= slow.wire


@settings(max_examples=30)
@given(st.integers(1, 382), st.floats(0, 1000))  # from 384 on the smallest matrices are no longer worth compressing
def test_more_rank_and_more_latency_are_never_faster(rank: int, latency: float) -> None:
    assert step(rank=Rank(rank)).seconds <= step(rank=Rank(rank + 1)).seconds
    assert step(rank=Rank(rank)).payload_bytes < step(rank=Rank(rank + 1)).payload_bytes
    low, high = step(rank=Rank(rank), link_latency_us=latency), step(rank=Rank(rank), link_latency_us=latency + 10)
    assert low.seconds < high.seconds


@settings(max_examples=20)
@given(st.floats(0.01, 100), st.floats(0, 1), st.floats(0, 1))
def test_senders_that_wait_longer_are_never_faster(gbit: float, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert step(gbit=gbit, sender_waits=less).seconds <= step(gbit=gbit, sender_waits=more).seconds


@settings(max_examples=20)
@given(st.integers(0, STAGES - 1), st.floats(0.1, 1.0))
def test_a_slower_stage_is_never_faster_and_equal_speeds_change_nothing(stage: int, speed: float) -> None:
    speeds = tuple(speed if i == stage else 1.0 for i in range(STAGES))
    assert step(stage_speeds=speeds).seconds >= step().seconds
    assert step(stage_speeds=(1.0,) * STAGES) == step()
    alike, halved = step(stage_speeds=(0.5,) * STAGES, link_latency_us=0), step(link_latency_us=0)
    assert alike.encode == pytest.approx(2 * halved.encode)
    assert alike.wire == pytest.approx(halved.wire)


def ask(gbit: float) -> Forecasts:
    """PowerSGD on such links, beside dense methods."""
    return forecast(Scenario(spec("dense"), rates(), "fp32").at(gbit), chosen(["powersgd"]))


def test_a_rank_that_would_not_be_smaller_is_dense() -> None:
    assert step(rank=Rank(10**6)) == step("dense", rank=DENSE)
    assert step(rank=DENSE) == step("dense", rank=DENSE)


def test_one_data_parallel_rank_exchanges_nothing() -> None:
    alone = Question("gpt2-2.5b", "v100x32", parallel={"tensor": 4, "pipeline": 2, "data": 4}).spec()
    one = alone.model_copy(update={"parallel": alone.parallel.model_copy(update={"data": 1})})
    model = StepModel(one, rates())
    assert model.step([Decision()] * 2).exposed == pytest.approx(0)
    assert model.step([Decision()] * 2).payload_bytes == 0


def test_an_infinite_link_leaves_only_arithmetic_and_latency() -> None:
    found = step(gbit=1e9, link_latency_us=0)
    assert found.wire == pytest.approx(0, abs=1e-6)
    assert found.exposed == pytest.approx(found.encode + found.decode, rel=1e-3)


def test_without_overlap_the_parts_add_up() -> None:
    found = step()
    assert found.exposed == pytest.approx(found.encode + found.wire + found.decode)
    whole = found.compute + found.bubble + found.exposed + found.embedding + found.optimizer
    assert found.seconds == pytest.approx(whole)


def test_overlap_hides_what_it_can_and_sends_the_same() -> None:
    plain, hidden = step("dense_bf16", ON), step("dense_bf16_overlap", ON)
    assert hidden.payload_bytes == plain.payload_bytes
    assert hidden.seconds < plain.seconds


def test_late_fragments_hide_what_crosses_and_send_the_same() -> None:
    """All of it on a fast link, what fits into the delay on a slow one; encode and decode are never hidden."""
    plain = load(Method, "streaming_diloco").model_dump()
    whole = {"fragments": 1, "delay": 0, "mixing": 0.0}

    def streaming(gbit: float, **changes: Any) -> tuple[float, Step]:
        method = Method.model_validate(merge(plain, {"synchronisation": changes}))
        model = StepModel(of_method(at_rate(spec("dense"), gbit), method), rates())
        return model.floor, model.step([Decision(Bits(4))] * STAGES)

    for gbit in (100, 0.01):
        (floor, late), (_, waiting) = streaming(gbit), streaming(gbit, **whole)
        assert late.payload_bytes == waiting.payload_bytes
        assert late.encode == pytest.approx(waiting.encode, rel=0.2)
        hidden = min(late.wire, 4 * 5 * floor / 100)  # four fragments a hundred steps, beside five steps each
        own = late.encode + late.decode + late.embedding / 100  # two stages' copies are made equal once
        assert late.exposed == pytest.approx(own + late.wire - hidden, rel=0.01)
        assert late.seconds < waiting.seconds


@pytest.mark.tier("test")
def test_every_policy_runs_a_paper_length_and_decides_within_its_limits() -> None:
    for name in ("dense", "topk", "edgc", "edgc_released", "edgc_loss", "edgc_measured", "edgc_bits"):
        found = WholeRun.of(StepModel(spec(name), rates()))
        assert found.iterations == 230_000
        assert found.seconds >= 230_000 * StepModel(spec(name), rates()).floor
        if name.startswith("edgc"):
            first, last = found.windows[0], found.windows[-1]
            assert all(amount is None for amount in first.amounts), "warm-up sends everything"
            assert last.step.payload_bytes < first.step.payload_bytes


def test_optimus_cc_compresses_the_stages_that_end_last_and_no_copy_of_the_embedding() -> None:
    model, rank = StepModel(spec("optimus_cc_stages"), rates()), Decision(Rank(128))
    shares = [
        model.workload(stage, rank).payload / model.workload(stage, Decision()).payload for stage in range(STAGES)
    ]
    assert max(shares[:3]) < 0.3
    assert shares[3] == 1
    of_the_embedding = 4 * prod(model.shapes[0][TIED[0]])
    everything = [4 * sum(map(prod, model.shapes[stage].values())) for stage in range(STAGES)]
    alone = [all_of_it - model.workload(i, Decision()).payload for i, all_of_it in enumerate(everything)]
    assert alone == [of_the_embedding, 0, 0, of_the_embedding]


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("name", "uniform"), [("lgreco", "powersgd"), ("lgreco_bits", "int4"), ("lgreco_topk", "topk")]
)
def test_what_only_a_run_can_decide_is_taken_at_its_default_and_looking_costs(name: str, uniform: str) -> None:
    found, plain = (WholeRun.of(StepModel(spec(each), rates())) for each in (name, uniform))
    assert "is taken as if it saw none" in " ".join(found.notes)
    assert found.compressed.step.payload_bytes == plain.compressed.step.payload_bytes
    assert plain.seconds < found.seconds < 1.05 * plain.seconds


def test_accordion_follows_the_trajectorys_norms() -> None:
    """Entropy falls by .3 nats a window, which is a quarter of the norm, and then by one, which is more than half."""

    @dataclass(frozen=True)
    class Falling(Parametric):
        def entropy(self, share: float, stage: int, stages: int) -> float:
            return -0.3 * share * 230 - (1.0 if share > 0.5 else 0.0)

    ranks = [window.amounts[0] for window in WholeRun.of(StepModel(spec("accordion"), rates()), Falling()).windows]
    assert [place for place, rank in enumerate(ranks) if rank == 32] == [0, 1, 116]
    assert set(ranks) == {16, 32}


@pytest.mark.tier("test")
def test_the_sentence_changes_sign_where_the_table_says_so() -> None:
    at = ask(32).by_name("powersgd").break_even_gbit
    assert at is not None
    assert ask(at / 100).verdict == "pays"
    assert ask(at / 100).sentence.startswith("pays: ")
    assert ask(at / 1.05).by_name("powersgd").saving_percent > 0
    assert ask(at * 1.05).by_name("powersgd").saving_percent < 0
    assert ask(at * 3).verdict == "does not pay"


@pytest.mark.tier("test")
def test_devices_are_as_busy_as_the_table_of_links_says() -> None:
    here = ask(32)
    for method in ("dense", "powersgd"):
        needs = here.by_name(method).needs_gbit
        assert 0 < needs[50] < needs[80] < needs[95]
        for share, gbit in needs.items():
            assert gbit == float("inf") or ask(gbit).by_name(method).utilisation_percent == pytest.approx(
                share, abs=0.5
            )
    assert here.by_name("powersgd").needs_gbit[80] < here.by_name("dense").needs_gbit[80]


def test_the_highest_rank_that_pays_is_the_last_one_that_is_faster_than_the_baseline() -> None:
    found = ask(32)
    rank, model = found.by_name("powersgd").highest_rank, StepModel(spec(), rates(), "fp32")
    assert rank is not None
    assert model.step([Decision(Rank(rank))] * STAGES).seconds < found.baseline.iteration_s
    assert model.step([Decision(Rank(rank + 1))] * STAGES).seconds >= found.baseline.iteration_s
    assert found.by_name("dense").highest_rank is None


def test_memory_falls_with_every_degree_of_model_parallelism() -> None:
    whole = memory(spec(tensor=4, pipeline=2, data=4), "fp32").total
    assert memory(spec(tensor=4, pipeline=4, data=2), "fp32").total < whole
    assert (
        memory(spec(tensor=2, pipeline=4, data=4), "fp32").total
        > memory(spec(tensor=4, pipeline=4, data=2), "fp32").total
    )


def test_nothing_is_kept_of_a_tied_embedding_that_is_exchanged_by_itself() -> None:
    plain = load(Method, "powersgd")
    alone = plain.model_copy(update={"fused_embedding": True})
    first, *others = (
        one.method - other.method
        for one, other in zip(
            *(memory_by_stage(of_method(spec(), each), "fp32") for each in (plain, alone)), strict=True
        )
    )
    table = prod(StepModel(spec(), rates()).shapes[0][TIED[0]])
    assert first == pytest.approx(4 * table, rel=0.1)  # its error, and factors
    assert others == [0, 0, first]


def test_a_model_that_does_not_fit_is_refused_with_its_needs() -> None:
    huge = Question("gpt2-12.1b", "v100x32", parallel={"tensor": 1, "pipeline": 1, "data": 32}).spec()
    with pytest.raises(UserError, match=r"gpt2-12\.1b does not fit: a V100 has 32 GB.*use more tensor"):
        check_memory(huge, rates(), "fp32")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--link", "200"], "link rate '200': must be a number above 0 and its unit"),
        (["--link", "-3gbit"], "link rate '-3gbit': must be a number above 0"),
        (["--tensor", "3"], "tensor 3 × pipeline 4 × data 5 = 60 processes, but cluster h100x64 has 16 × 4"),
        (["--precision", "int3"], "no rate of int3 products; there are fp32, tf32"),
        (["--method", "nocomm"], "a control of timings"),
        (["--stage-speed", "0.5"], "stage speeds 0.5: must be one for each of 4 stages"),
        (["--latency", "-1"], "Invalid value for '--latency'"),
        (["--calibration", "mine"], "calibration 'mine': no file"),
    ],
)
def test_bad_questions_are_refused(arguments: list[str], said: str) -> None:
    asked = CliRunner().invoke(app, ["plan", "--model", "gpt2-12.1b", "--cluster", "h100x64", *arguments])
    assert asked.exit_code == 2
    assert said in asked.output.replace("\n", " ")


@pytest.mark.tier("test")
def test_the_command_prints_what_scripts_need() -> None:
    asked = ["plan", "--model", "gpt2-12.1b", "--cluster", "h100x64", "--precision", "tf32", "--method", "powersgd"]
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert {"iteration_s", "baseline_s", "saving_percent", "break_even_gbit", "verdict"} <= set(found)
    assert set(found["latency_reduction_percent"]) == {"wire", "exchange", "exposed", "everything"}
    assert found["calibration"]["source"] == "assumed"
    shown = CliRunner().invoke(app, asked).stdout
    assert found["verdict"] in shown
    assert "assumed" in shown


def test_all_traffic_counts_what_stages_send_each_other() -> None:
    alone = StepModel(spec("dense", tensor=1, pipeline=4, data=8), rates())
    found = alone.step([Decision()] * STAGES)
    to_next, to_last = alone._hops
    hops = {0: to_next, 1: to_next + to_last, 2: to_next + to_last, 3: to_last}[found.stage]
    assert found.other_traffic == pytest.approx(alone.spec.micro_batches * hops)
    assert found.latencies["everything"] == pytest.approx(found.wire + found.embedding + found.other_traffic)


def test_a_recorded_run_is_stretched_to_the_one_that_is_simulated(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "steps.jsonl", [{"step": 100, "loss": 5.0}, {"step": 200, "loss": 4.0}])
    entropies = {(100, 0): -4.0, (100, 1): -5.0, (200, 0): -6.0, (200, 1): -5.5}
    rows = [{"step": at, "stage": stage, "entropy": nats} for (at, stage), nats in entropies.items()]
    write_jsonl(tmp_path / "decisions.jsonl", rows)
    recorded = Recorded.read(tmp_path)
    assert (recorded.entropy(0.75, 0, 2), recorded.entropy(1.0, 3, 4), recorded.loss(0.75)) == (-5.0, -5.5, 4.5)
    write_jsonl(tmp_path / "decisions.jsonl", [])
    with pytest.raises(UserError, match="no entropy on record"):
        Recorded.read(tmp_path)


@settings(max_examples=20)
@given(st.floats(0.01, 1000), st.floats(0, 1e5))
def test_more_steps_to_cross_the_network_never_cost_time_and_a_link_that_is_full_gains_nothing(
    gbit: float, latency_us: float
) -> None:
    changed = {"link_latency_us": latency_us}
    one, two = (step(name, gbit=gbit, **changed) for name in ("delayed", "delayed_2"))
    now = step("dense", gbit=gbit, **changed)
    assert one.payload_bytes == two.payload_bytes
    assert two.seconds <= one.seconds * (1 + 1e-9)
    assert now.seconds >= one.seconds - one.encode, "but for gradients and averages that change places"
    model = StepModel(at_rate(spec("delayed_2"), gbit), rates().model_copy(update=changed))
    on_the_link = model.transfers.collective("all_reduce", one.payload_bytes, model.transfers.group("data", one.stage))
    assert two.seconds >= on_the_link.link


def test_gossip_sends_what_its_neighbours_get_however_many_ranks_there_are() -> None:
    for ranks, tensor, neighbours in ((2, 4, 1), (4, 2, 2), (8, 1, 2)):
        asked = Question("gpt2-2.5b", "v100x32", parallel={"data": ranks, "tensor": tensor, "pipeline": 4}).spec()
        model = StepModel(asked.model_copy(update={"method": load(Method, "gossip")}), rates())
        found = model.step([Decision(ON)] * STAGES)
        numel = sum(prod(shape) for shape in model.shapes[found.stage].values())
        assert found.payload_bytes == neighbours * 4 * numel
