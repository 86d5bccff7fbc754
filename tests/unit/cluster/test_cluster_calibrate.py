"""A calibration from timings that were made up from known rates: they are found again, and predict what they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from edgc.core.base.errors import UserError
from edgc.core.policies.policy import Decision
from edgc.suite.cluster.calibrate import Timed, calibrate
from edgc.suite.cluster.compute import seconds
from edgc.suite.cluster.question import at_rate
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.config import Calibration, Method, RunSpec, Stages, load, load_experiment
from edgc.suite.config.rate import bits_per_second

TRUTH = Calibration(
    name="truth", source="calibrated", origin="made up", device_model="CPU", gemm_tflops={"fp32": 1.0},
    gemm_efficiency=1.0, thin_tflops=0.05, memory_gbyte_s=8.0, memory_gbyte=None, launch_us=30.0, link_efficiency=0.9,
    link_latency_us=200.0, inside_gbyte_s=1.0, inside_latency_us=0.0, endpoint_gbyte_s=0.4,
    sender_waits=0.4,
    stages=(
        Stages(model="gpt2-nano", tensor=1, precision="fp32", micro_batch=2,
               forward_s=(0.04,), backward_s=(0.05,), optimizer_s=(0.02,)),
        Stages(model="gpt2-nano", tensor=1, precision="fp32", micro_batch=1,
               forward_s=(0.01, 0.016), backward_s=(0.012, 0.01), optimizer_s=(0.02, 0.015)),
    ),
)  # fmt: skip
RATES = ("50mbit", "200mbit", "none")


def decisions(spec: RunSpec) -> list[Decision]:
    """A fixed policy's amount, on every stage."""
    return [Decision(spec.method.policy.largest)] * spec.parallel.pipeline


def model_of(spec: RunSpec, rate: str, calibration: Calibration) -> StepModel:
    """On links of a rate; those without a limit are very fast ones."""
    return StepModel(at_rate(spec, 1e6 if rate == "none" else bits_per_second(rate) / 1e9), calibration)


def step_s(spec: RunSpec, rate: str, calibration: Calibration) -> float:
    return model_of(spec, rate, calibration).step(decisions(spec)).seconds


def session(experiment: str, truth: Stages, rates: Sequence[str] = RATES) -> list[Timed]:
    """What an experiment would have recorded with these rates."""
    return [
        Timed(
            spec,
            {rate: [recorded(spec, rate, truth, stage) for stage in range(spec.parallel.pipeline)] for rate in rates},
            {rate: step_s(spec, rate, TRUTH) for rate in rates},
            {"none": 1e9},
        )
        for spec in load_experiment(experiment).runs()
    ]


def recorded(spec: RunSpec, rate: str, truth: Stages, stage: int) -> dict[str, float]:
    """A stage's seconds by region."""
    workload = model_of(spec, rate, TRUTH).workload(stage, decisions(spec)[stage])
    return {
        "forward": spec.micro_batches * truth.forward_s[stage],
        "backward": spec.micro_batches * truth.backward_s[stage],
        "optimizer": truth.optimizer_s[stage] - 0.005,
        "other": 0.005,
        "encode": seconds([kernel for phase in workload.phases for kernel in phase.kernels], TRUTH),
        "decode": seconds(workload.decode, TRUTH),
    }


def trained_with_muon(spec: RunSpec) -> RunSpec:
    return spec.model_copy(update={"training": spec.training.model_copy(update={"optimizer": "muon"})})


@pytest.fixture(scope="module")
def whole() -> list[Timed]:
    return session("cluster-validation", TRUTH.stages[0])


def test_the_rates_are_found_again_and_predict_other_links(whole: list[Timed]) -> None:
    found = calibrate("mine", whole, "made up")
    assert found.source == "calibrated"
    for part in ("forward_s", "backward_s", "optimizer_s"):
        assert getattr(found.stages[0], part) == pytest.approx(getattr(TRUTH.stages[0], part))
    assert found.link_efficiency == pytest.approx(0.9, rel=0.02)
    assert found.link_latency_us == pytest.approx(200, rel=0.1)
    assert found.endpoint_gbyte_s == pytest.approx(0.4, rel=0.05)
    assert found.sender_waits == 1, "without pipeline stages it cannot be told"
    held_out = [one.spec for one in whole if one.spec.method.name in ("dense", "powersgd_r8")]
    for spec in held_out:
        assert step_s(spec, "100mbit", found) == pytest.approx(step_s(spec, "100mbit", TRUTH), rel=0.01)


def test_stages_tell_how_long_their_senders_wait(whole: list[Timed]) -> None:
    staged = session("cluster-calibration-pipeline", TRUTH.stages[1])
    found = calibrate("mine", [*whole, *staged], "made up")
    assert found.sender_waits == pytest.approx(0.4, abs=0.03)
    assert found.link_efficiency == pytest.approx(0.9, rel=0.02)
    for one in staged:
        assert step_s(one.spec, "100mbit", found) == pytest.approx(step_s(one.spec, "100mbit", TRUTH), rel=0.01)


def test_what_a_session_lacks_is_said(whole: list[Timed]) -> None:
    without_floor = [one for one in whole if one.spec.method.name != "nocomm"]
    one_rate = [replace(one, step_s={rate: one.step_s[rate] for rate in ("none", "50mbit")}) for one in whole]
    with_muon = [replace(one, spec=trained_with_muon(one.spec)) for one in whole]
    for timed in (without_floor, one_rate, with_muon):
        with pytest.raises(UserError, match="needs the method nocomm with optimizer: adamw, two methods"):
            calibrate("mine", timed, "made up")


def test_what_does_not_exchange_in_every_step_tells_no_rates(whole: list[Timed]) -> None:
    """Its fastest step has no exchange at all."""
    local = load(Method, "diloco")
    dense = next(one for one in whole if one.spec.method.name == "dense")
    fast = replace(dense, spec=dense.spec.model_copy(update={"method": local}), step_s=dict.fromkeys(RATES, 0.05))
    assert calibrate("mine", [*whole, fast], "made up") == calibrate("mine", whole, "made up")
