"""The probe on gradients whose spectra and entropies are known, through the exchange, and its records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.dense import DenseSettings
from edgc.core.base.errors import UserError
from edgc.core.base.files import read_jsonl
from edgc.core.base.settings import validate
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.entropy import sampled_entropy
from edgc.core.exchange.gradient_exchange import GradientExchange
from edgc.core.policies import POLICIES
from edgc.core.policies.fixed import FixedSettings
from edgc.core.policies.policy import Context, Sampling
from edgc.core.policies.rank_model import error_curve
from edgc.suite.config import Probe, RunSpec, Training
from edgc.suite.training.probe import HISTOGRAM_BINS, TIMED, GradientProbe, cosine, spectrum
from edgc.suite.training.recorder import PROBED, Recorder, probe_of
from tests.fixtures.studies import tiny_spec

ALL = {"entropy_every": 1, "rates": (1.0, 0.25), "estimators": ("gaussian", "histogram"), "spectra_every": 2}
SHAPES = {"layers.0.fc": (24, 16), "layers.0.norm": (16,), "layers.1.fc": (24, 16), "words": (40, 16)}


def gradients(step: int, rank: int = 0) -> list[NamedTensor]:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return [NamedTensor(name, torch.randn(shape, generator=generator)) for name, shape in SHAPES.items()]


def records(steps: int, **settings: Any) -> list[dict[str, Any]]:
    probe = GradientProbe(3, Probe(**(ALL | settings)))
    for step in range(steps):
        own = gradients(step)
        for bucket in (own[:2], own[2:]):
            probe.local(step, bucket)
        for bucket in (own[:2], own[2:]):
            probe.average(step, bucket)
    return probe.take()


def test_a_random_matrix_has_the_spectrum_of_marchenko_and_pastur() -> None:
    matrix = 0.3 * torch.randn(256, 512, generator=torch.Generator().manual_seed(1))
    seen = spectrum(matrix)
    assert seen["deviation"] == pytest.approx(0.3, rel=0.01)
    assert seen["kurtosis"] == pytest.approx(0, abs=0.05)
    energy = np.square(seen["singular_values"])
    left = np.sqrt(np.append(np.cumsum(energy[::-1])[::-1], 0)) / 0.3
    assert left[:200] == pytest.approx(error_curve(256, 512)[:200], rel=0.01)
    assert sum(seen["histogram"]) == pytest.approx(1)
    middle = seen["histogram"][HISTOGRAM_BINS // 2]
    assert middle == pytest.approx(0.2 / math.sqrt(2 * math.pi), rel=0.05)  # a bin is .2 deviations wide


def test_a_low_rank_matrix_has_as_many_singular_values() -> None:
    generator = torch.Generator().manual_seed(2)
    matrix = torch.randn(64, 3, generator=generator) @ torch.randn(3, 48, generator=generator)
    values = spectrum(matrix)["singular_values"]
    assert len(values) == 48
    assert values[2] > 1
    assert values[3] < 1e-4


@pytest.mark.parametrize("bad", [torch.full((4, 3), torch.nan), torch.tensor([[1.0, torch.inf]])])
def test_a_gradient_that_is_not_finite_is_recorded_as_missing(bad: torch.Tensor) -> None:
    assert set(spectrum(bad).values()) == {None}
    assert cosine(bad, bad) is None


def test_a_zero_gradient_has_no_distribution_and_no_direction() -> None:
    seen = spectrum(torch.zeros(4, 3))
    assert (seen["singular_values"], seen["deviation"]) == ([0, 0, 0], 0)
    assert seen["histogram"] is None
    assert cosine(torch.zeros(4, 3), torch.ones(4, 3)) is None


def test_entropies_are_the_samplers_own() -> None:
    record = records(1)[0]
    assert record["parameters"] == ["layers.0.fc", "layers.1.fc", "words"]  # matrices only, of all buckets
    matrices = [g for g in gradients(0) if g.tensor.dim() == 2]
    for estimator in ("gaussian", "histogram"):
        for rate in (1.0, 0.25):
            expected = sampled_entropy(matrices, Sampling(1, rate, estimator))
            found = dict(zip(record["parameters"], record["entropy"][estimator][f"{rate:g}"], strict=True))
            assert found == pytest.approx({name: float(nats) for name, nats in expected.items()}, rel=1e-6)
            assert record["seconds"][estimator][f"{rate:g}"] > 0
    assert record["elements"]["1"] == sum(math.prod(s) for s in SHAPES.values() if len(s) == 2)
    assert 0.15 < record["elements"]["0.25"] / record["elements"]["1"] < 0.25


def test_cosines_are_of_matrices_of_one_shape_and_of_consecutive_looks() -> None:
    first, second = (record["spectra"] for record in records(3)[::2])
    before, now = ({g.name: g.tensor for g in gradients(step)} for step in (0, 2))
    assert first["previous"] == [None] * 3
    for name, found in zip(("layers.0.fc", "layers.1.fc", "words"), second["previous"], strict=True):
        by_hand = torch.nn.functional.cosine_similarity(before[name].view(-1), now[name].view(-1), dim=0)
        assert found == pytest.approx(float(by_hand), abs=1e-6)
    by_hand = torch.nn.functional.cosine_similarity(now["layers.0.fc"].view(-1), now["layers.1.fc"].view(-1), dim=0)
    assert second["alike"] == [{}, {"layers.0.fc": pytest.approx(float(by_hand), abs=1e-6)}, {}]


def test_steps_are_looked_at_as_often_as_asked_and_told_once() -> None:
    found = records(6, entropy_every=3)
    assert [(r["step"], "entropy" in r, "spectra" in r) for r in found] == [
        (1, True, True),
        (3, False, True),
        (4, True, False),
        (5, False, True),
    ]
    assert {r["stage"] for r in found} == {3}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    probe = GradientProbe(0, Probe(entropy_every=1))
    probe.local(0, gradients(0))
    assert len(probe.take()) == 1
    assert probe.take() == []


def test_the_exchange_shows_own_gradients_before_and_the_average_after() -> None:
    def body(comm: LoopbackCommunicator) -> dict[str, Any]:
        policy = POLICIES["fixed"](FixedSettings(name="fixed"), Context(0, 1, 10, SHAPES))
        aggregator = AGGREGATORS["dense"](DenseSettings(name="dense"))
        exchange = GradientExchange(aggregator, policy, comm, comm, SHAPES)
        exchange.probe = probe = GradientProbe(0, Probe(**ALL))
        exchange.begin_round(0)
        own = gradients(0, comm.rank)
        exchange.start(own[:2]).wait()
        exchange.start(own[2:]).wait()
        return probe.take()[0]

    found = run_ranks(2, body)
    ours, theirs = ({g.name: g.tensor for g in gradients(0, rank)} for rank in (0, 1))
    assert found[0]["entropy"] != found[1]["entropy"]
    own = sampled_entropy([NamedTensor("words", ours["words"])], Sampling(1, 1.0, "gaussian"))["words"]
    assert found[0]["entropy"]["gaussian"]["1"][2] == pytest.approx(float(own), rel=1e-6)
    expected = torch.linalg.svdvals((ours["words"] + theirs["words"]) / 2).tolist()
    for record in found:
        assert record["spectra"]["singular_values"][2] == pytest.approx(expected, rel=1e-4)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A job of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_records_are_appended_in_order_and_a_resumed_run_drops_what_it_makes_again(tmp_path: Path) -> None:
    plain = tiny_spec().model_dump()
    plain["training"]["probe"] |= {"entropy_every": 1, "rates": (1.0,), "timed_shapes": ((8, 4),)}
    spec = RunSpec.model_validate(plain)
    place = SimpleNamespace(rank=0, tensor=0, data=0, stage=0, last_stage=True, device=torch.device("cpu"))

    def train(first: int, last: int) -> None:
        records = Recorder(spec, tmp_path, place)
        records.rewind(first)
        assert records.probe is not None
        for step in range(first, last):
            records.probe.local(step, gradients(step))
            records.flush()

    def on_file() -> list[dict[str, Any]]:
        return [{k: v for k, v in r.items() if k != "seconds"} for r in read_jsonl(tmp_path / PROBED)]

    train(0, 6)
    whole = on_file()
    assert [r["step"] for r in whole] == [0] * TIMED + [1, 2, 3, 4, 5, 6]
    path = tmp_path / PROBED
    path.write_text(path.read_text()[:-5])  # killed while it wrote
    train(3, 6)
    assert on_file() == whole
    train(0, 6)  # without a checkpoint everything is made again
    assert on_file() == whole
    assert probe_of(spec, SimpleNamespace(**(vars(place) | {"data": 1}))) is None
    assert probe_of(tiny_spec(), place) is None


def test_looking_changes_nothing() -> None:
    own = gradients(0)
    probe = GradientProbe(0, Probe(**ALL))
    probe.local(0, own)
    probe.average(0, own)
    assert all(torch.equal(a.tensor, b.tensor) for a, b in zip(own, gradients(0), strict=True))


def test_settings_need_the_full_rate_and_name_what_is_wrong() -> None:
    assert not Training(iterations=1, micro_batch=1, global_batch=1).probe.looks  # type: ignore[call-arg]
    assert Probe.model_validate({"spectra_every": 5}).looks
    base = {"iterations": 1, "micro_batch": 1, "global_batch": 1}
    for probe, told in (
        ({"rates": [0.5]}, "must hold 1"),
        ({"rates": [1.0, 1.5]}, "less than or equal to 1"),
        ({"estimators": ["gaussian", "gaussian"]}, "names one twice"),
        ({"every": 5}, "unknown setting; there are: entropy_every"),
    ):
        with pytest.raises(UserError, match=told):
            validate(Training, {**base, "probe": probe}, "x")
