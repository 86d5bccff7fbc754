"""A calibration from timings that were made up from known rates: they are found again, and predict what they were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgc.cluster.calibrate import Timed, calibrate
from edgc.cluster.plan import at_rate
from edgc.cluster.step import Step, StepModel
from edgc.config import Calibration, RunSpec, Stages, load_experiment
from edgc.config.cluster import bits_per_second
from edgc.errors import UserError
from edgc.policies.base import Decision

TRUTH = Calibration(
    name="truth", source="calibrated", origin="made up", device_model="CPU", gemm_tflops={"fp32": 1.0},
    gemm_efficiency=1.0, thin_tflops=0.05, memory_gbyte_s=8.0, memory_gbyte=None, launch_us=30.0, link_efficiency=0.9,
    link_latency_us=200.0, inside_gbyte_s=1.0, inside_latency_us=0.0, endpoint_gbyte_s=0.4,
    stages=(
        Stages(model="gpt2-nano", tensor=1, precision="fp32", micro_batch=2,
               forward_s=(0.04,), backward_s=(0.05,), optimizer_s=(0.02,)),
    ),
)  # fmt: skip
RATES = ("50mbit", "200mbit", "none")


def step(spec: RunSpec, rate: str, calibration: Calibration) -> Step:
    """A step at a rate; links without a limit are very fast ones."""
    gbit = 1e6 if rate == "none" else bits_per_second(rate) / 1e9
    policy = spec.method.policy
    amount = getattr(policy, "rank", None) or getattr(policy, "ratio", None)
    return StepModel(at_rate(spec, gbit), calibration).step([Decision(amount)])


def session() -> list[Timed]:
    """What `links-nano` would have recorded with these rates."""
    timed = []
    for spec in load_experiment("links-nano").runs():
        parts = {rate: step(spec, rate, TRUTH) for rate in RATES}
        seconds = {
            rate: [
                {"forward": 0.04, "backward": 0.05, "optimizer": 0.015, "other": 0.005}
                | {"encode": found.encode, "decode": found.decode}
            ]
            for rate, found in parts.items()
        }
        timed.append(Timed(spec, seconds, {rate: found.seconds for rate, found in parts.items()}, {"none": 1e9}))
    return timed


def test_the_rates_are_found_again_and_predict_other_links() -> None:
    found = calibrate("mine", session(), "made up")
    assert found.source == "calibrated"
    for part in ("forward_s", "backward_s", "optimizer_s"):
        assert getattr(found.stages[0], part) == pytest.approx(getattr(TRUTH.stages[0], part))
    assert found.link_efficiency == pytest.approx(0.9, rel=0.02)
    assert found.link_latency_us == pytest.approx(200, rel=0.1)
    assert found.endpoint_gbyte_s == pytest.approx(0.4, rel=0.05)
    held_out = [spec for spec in load_experiment("links-nano").runs() if spec.method.name in ("dense", "powersgd_r8")]
    for spec in held_out:
        assert step(spec, "100mbit", found).seconds == pytest.approx(step(spec, "100mbit", TRUTH).seconds, rel=0.01)


def test_what_a_session_lacks_is_said() -> None:
    whole = session()
    without_floor = [one for one in whole if one.spec.method.name != "nocomm"]
    one_rate = [replace(one, step_s={rate: one.step_s[rate] for rate in ("none", "50mbit")}) for one in whole]
    for timed in (without_floor, one_rate):
        with pytest.raises(UserError, match="needs the method nocomm, two methods with different ranks, and two limit"):
            calibrate("mine", timed, "made up")
