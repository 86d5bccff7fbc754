"""Codecs of the traffic between pipeline stages: what is sent, what is lost, and which settings are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.core.exchange.link_codecs import LinkCodec, LinkCodecSettings, build
from edgc.suite.config import RunSpec
from tests.fixtures.studies import tiny_spec

SHAPE = (24, 2, 16)  # sequence, micro-batch, hidden: a matrix of 48×16
ROWS, COLUMNS = 48, 16


def codec(direction: str = "backward", stage: int = 1, seed: int = 3, **settings: Any) -> LinkCodec:
    return build(LinkCodecSettings(**settings), direction, stage, seed)  # type: ignore[arg-type]


def through(sender: LinkCodec, tensor: Tensor, receiver: LinkCodec | None = None) -> Tensor:
    """What arrives, by way of the memory that the receiver allocates."""
    receiver = receiver or sender
    message, buffer = sender.encode(tensor), receiver.buffer(tensor.shape, tensor.dtype, tensor.device)
    assert message.shape == buffer.shape
    assert message.dtype == buffer.dtype
    buffer.copy_(message)
    arrived = receiver.decode(buffer, tensor.shape, tensor.dtype)
    assert arrived.shape == tensor.shape
    assert arrived.dtype == tensor.dtype
    return arrived


def noise(seed: int, kind: torch.dtype = torch.float32, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(kind)


def of_rank(rank: int, seed: int = 0) -> Tensor:
    left, right = noise(seed, shape=(ROWS, rank)), noise(seed + 1, shape=(rank, COLUMNS))
    return (left @ right).view(SHAPE)


def size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


CODECS: list[dict[str, Any]] = [{"name": "none"}, {"name": "bf16"}, {"name": "lowrank", "rank": 3}]


def test_none_sends_the_tensor_itself() -> None:
    tensor = noise(0)
    assert codec(name="none").encode(tensor) is tensor
    assert torch.equal(through(codec(name="none"), tensor), tensor)


def test_bf16_halves_the_bytes_and_rounds_to_eight_bits() -> None:
    tensor = noise(0)
    assert size(codec(name="bf16").encode(tensor)) == size(tensor) / 2
    arrived = through(codec(name="bf16"), tensor)
    assert ((arrived - tensor).abs() <= 2**-8 * tensor.abs()).all()
    already = tensor.bfloat16()
    assert codec(name="bf16").encode(already) is already


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_low_rank_message_is_its_two_factors_in_the_precision_of_the_traffic(kind: torch.dtype) -> None:
    message = codec(name="lowrank", rank=3).encode(noise(0, kind))
    assert message.dtype == kind
    assert message.numel() == 3 * (ROWS + COLUMNS)


@pytest.mark.parametrize("rank", [3, 5])
def test_low_rank_is_exact_for_a_matrix_of_that_rank(rank: int) -> None:
    tensor = of_rank(3)
    arrived = through(codec(name="lowrank", rank=rank), tensor)
    torch.testing.assert_close(arrived, tensor, rtol=0, atol=1e-5 * float(tensor.abs().max()))


@pytest.mark.parametrize("settings", CODECS)
def test_the_input_is_left_as_it_was(settings: dict[str, Any]) -> None:
    tensor, sender = noise(0), codec(**settings)
    for _ in range(2):
        sender.encode(tensor)
    assert torch.equal(tensor, noise(0))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_error_feedback_loses_nothing(kind: torch.dtype) -> None:
    sender, count = codec(name="lowrank", rank=2), 12
    inputs = [noise(i, kind) for i in range(count)]
    sent = sum(through(sender, tensor).double() for tensor in inputs)
    error = sender.state_dict()["error"].double().view(SHAPE)
    torch.testing.assert_close(sent + error, sum(t.double() for t in inputs), rtol=0, atol=1e-4)


def test_with_error_feedback_the_mean_of_what_arrives_converges_to_the_input() -> None:
    tensor = noise(0)
    distances = {}
    for feedback in (True, False):
        sender = codec(name="lowrank", rank=2, error_feedback=feedback)
        arrived = [through(sender, tensor) for _ in range(200)]
        distances[feedback] = float((sum(arrived) / len(arrived) - tensor).norm() / tensor.norm())
    assert distances[True] < 0.05
    assert distances[False] > 0.5


def test_warm_start_converges_to_the_best_approximation_and_a_cold_one_does_not() -> None:
    matrix = noise(0).view(ROWS, COLUMNS)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    tensor = (left * (values * 0.7 ** torch.arange(COLUMNS)) @ right).view(SHAPE)
    matrix = tensor.view(ROWS, COLUMNS)
    best = float(torch.linalg.svdvals(matrix)[3:].norm())
    lost = {}
    for warm in (True, False):
        sender = codec(name="lowrank", rank=3, error_feedback=False, warm_start=warm)
        lost[warm] = [float((through(sender, tensor) - tensor).norm()) for _ in range(30)]
    assert lost[True][-1] == pytest.approx(best, rel=1e-4)
    assert lost[True][0] > 1.001 * best
    assert min(lost[False]) > 1.001 * best


@pytest.mark.parametrize("settings", CODECS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_arrives_not_finite(settings: dict[str, Any], bad: float) -> None:
    tensor = noise(0)
    tensor[3, 1, 5] = bad
    assert not through(codec(**settings), tensor).isfinite().all()


def test_zeros_arrive_as_zeros_and_the_factors_live_on() -> None:
    sender = codec(name="lowrank", rank=3)
    assert not through(sender, torch.zeros(SHAPE)).any()
    tensor = of_rank(3)
    arrived = through(sender, tensor) + through(sender, tensor)
    torch.testing.assert_close(arrived, 2 * tensor, rtol=0, atol=1e-5 * float(tensor.abs().max()))


@pytest.mark.parametrize("options", [{}, {"error_feedback": False}, {"warm_start": False}])
def test_saved_and_restored_equals_uninterrupted_bit_for_bit(options: dict[str, Any]) -> None:
    whole = codec(name="lowrank", rank=3, **options)
    for i in range(3):
        whole.encode(noise(i))
    restored = codec(name="lowrank", rank=3, **options)
    restored.load_state_dict(whole.state_dict())
    for i in range(3, 6):
        assert torch.equal(restored.encode(noise(i)), whole.encode(noise(i)))


def test_the_first_factor_depends_on_seed_direction_and_stage_only() -> None:
    def first(**place: Any) -> Tensor:
        return codec(name="lowrank", rank=3, **place).encode(noise(0))

    assert torch.equal(first(), first())
    for other in ({"seed": 4}, {"direction": "forward"}, {"stage": 2}):
        assert not torch.equal(first(), first(**other))


def test_the_receiver_needs_nothing_of_the_sender_but_the_message() -> None:
    sender, receiver = codec(name="lowrank", rank=3), codec(stage=0, seed=9, name="lowrank", rank=3)
    for i in range(3):
        message = sender.encode(noise(i))
        arrived = (c.decode(message, SHAPE, torch.float32) for c in (receiver, sender))
        assert torch.equal(*arrived)


def test_error_feedback_is_for_gradients_unless_asked_for() -> None:
    for direction, options, keeps in (
        ("backward", {}, True),
        ("forward", {}, False),
        ("forward", {"error_feedback": True}, True),
        ("backward", {"error_feedback": False}, False),
    ):
        sender = codec(direction, name="lowrank", rank=3, **options)
        sender.encode(noise(0))
        assert (sender.state_dict()["error"] is not None) == keeps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", [{}, {"name": "bf16"}, {"name": "lowrank", "rank": 3}], ids=str)
def test_a_message_has_the_bytes_that_the_cluster_model_counts(settings: dict[str, Any], dtype: torch.dtype) -> None:
    message = codec(**settings).encode(torch.randn(48, 16).to(dtype))
    foretold = LinkCodecSettings(**settings).message_bytes(48, 16, dtype.itemsize)
    assert message.numel() * message.element_size() == foretold


@pytest.mark.parametrize(
    "settings",
    [{"name": "lowrank"}, {"name": "bf16", "rank": 4}, {"rank": 4}, {"name": "bf16", "error_feedback": True}],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="lowrank"):
        LinkCodecSettings(**settings)


def run_spec(stages: int = 2, **method: Any) -> RunSpec:
    changes = {"cluster": {"processes_per_node": stages}, "parallel": {"data": 1, "pipeline": stages}}
    return validate(RunSpec, merge(tiny_spec().model_dump(), changes | {"method": method}), "test")


def test_a_rank_that_saves_nothing_is_refused() -> None:
    allowed = 4  # micro_batch · sequence 10, hidden 8: 4·18 < 80
    for direction in ("forward", "backward"):
        run_spec(pipeline={direction: {"name": "lowrank", "rank": allowed}})
        with pytest.raises(UserError, match=rf"method.pipeline.{direction}: rank 5 .*10×8.*allowed: 1 to {allowed}"):
            run_spec(pipeline={direction: {"name": "lowrank", "rank": allowed + 1}})


@pytest.mark.parametrize("method", [{"pipeline": {"forward": {"name": "bf16"}}}, {"fused_embedding": True}])
def test_settings_for_several_stages_are_refused_with_one(method: dict[str, Any]) -> None:
    run_spec(2, **method)
    with pytest.raises(UserError, match=rf"method.{next(iter(method))}.*parallel.pipeline is 1"):
        run_spec(1, **method)
