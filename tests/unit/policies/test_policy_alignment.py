"""r_max by timing and DAC inside the policies: who follows whom, what stays dense, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import DENSE, plain
from edgc.core.policies.policy import Context, Observation, Policy
from edgc.core.policies.stage_alignment import ExchangeCost, fit, proportional
from edgc.suite.config import Method

SHAPES = {"qkv": (128, 384), "mlp": (512, 128)}
LEAD = {"first": (256, 256), "second": (128, 512)}
RANKS = (2, 4, 8, 16, 32, 64)


def line(intercept: float, slope: float, dense: float) -> ExchangeCost:
    return fit({rank: [intercept + slope * rank] for rank in RANKS}, [dense])


EQUAL = line(1e-3, 1e-4, 9.05e-3)  # pays up to rank 80
NEVER = line(1e-3, 1e-4, 1e-3)


def make(costs: list[ExchangeCost | None], stage: int = 0, name: str = "edgc", **options: Any) -> Policy:
    chosen = {"window": 10, "warmup_fraction": 0.01, "step_limit": 100, "alpha": 0.1, "alignment": True} | options
    kind, shapes = POLICIES[name], SHAPES if stage else LEAD
    return kind(kind.Settings(name=name, **chosen), Context(stage, len(costs), 1000, shapes, LEAD, costs))


def observe(
    policy: Policy, window: int, *stage_entropy: float | None, backward: tuple[float, ...] = (), own: float = -5.0
) -> None:
    step = 10 * window + 9
    entropy = dict.fromkeys([*SHAPES, *LEAD], own)
    policy.observe(Observation(step, entropy, stage_entropy=stage_entropy, backward_seconds=backward))


def rank(policy: Policy) -> Any:
    """The one rank of the stage."""
    ranks = set(map(plain, policy.decide(0).by_parameter.values()))
    assert len(ranks) == 1
    return ranks.pop()


def clamp(policy: Policy) -> Any:
    clamps = set(policy.clamps().values())
    assert len(clamps) == 1
    return clamps.pop()


def test_the_last_stage_has_a_higher_rank_than_the_first() -> None:
    """T_com = 1 ms + 0.1 ms · r everywhere: each 1 ms of backward after it is worth ten ranks."""
    policies = [make([EQUAL] * 4, stage, max_rank=80, min_rank=8) for stage in range(4)]
    for policy in policies:
        for window, lead in enumerate((-8.0, -8.0, -8.3)):
            observe(policy, window, lead, -7.0, -6.0, -5.0, backward=(0.5e-3, 1e-3, 1e-3, 9.0))
    first = rank(policies[0])
    assert 8 < first < 60
    assert [rank(p) for p in policies] == [first, first + 5, first + 15, first + 25]


def test_a_line_through_the_origin_gives_a_later_stage_less() -> None:
    """2.5 ms are worth 25 ranks by 1 ms + 0.1 ms · r, and fewer by the steeper line without the 1 ms."""
    ranks = []
    for exchange_line in ("intercept", "origin"):
        lead, follower = (
            make([EQUAL] * 2, s, max_rank=80, step_limit=1, exchange_line=exchange_line) for s in range(2)
        )
        for window, entropy in enumerate((-8.0, -8.0, *[-8.3] * 40)):
            observe(lead, window, entropy, -7.0)
            observe(follower, window, entropy, -7.0, backward=(2.5e-3, 1e-3))
        ranks.append((rank(lead), rank(follower)))
    (first, whole), (same, less) = ranks
    assert first == same
    assert whole == first + 25
    assert less == round(first + 2.5e-3 / proportional(EQUAL).slope) < whole


def test_stages_compute_the_first_ones_rank_from_its_entropy_and_shapes() -> None:
    """With equal costs and no backward time all have its rank, whatever their own entropy does."""
    lead, follower = (make([EQUAL] * 2, stage, max_rank=64) for stage in range(2))
    seen = []
    for window, entropy in enumerate((-8.0, -8.0, -8.01, -8.02, -8.0)):
        observe(lead, window, entropy, -3.0)
        observe(follower, window, entropy, -3.0 - window, own=-3.0 - window)
        if window > 0:
            seen.append((rank(lead), rank(follower)))
    assert all(a == b for a, b in seen)
    assert len(set(seen)) > 1


def test_a_stage_with_time_to_send_uncompressed_is_dense() -> None:
    costs, backward = [EQUAL] * 3, (4e-3, 4e-3, 4e-3)
    policies = [make(costs, stage, max_rank=32, min_rank=4) for stage in range(3)]
    for policy in policies:
        for window in range(2):
            observe(policy, window, -8.0, -8.0, -8.0, backward=backward)
    assert [rank(p) for p in policies] == [32, 32, None]  # 4.2 + 8 ms, and uncompressed takes 9
    assert [clamp(p) for p in policies] == [None, "r_max", "dense"]


def test_own_limits_bound_an_aligned_rank() -> None:
    slow = line(3e-3, 4e-4, 1.0)
    follower = make([EQUAL, slow], 1, max_rank=32, min_rank=8)
    for window in range(2):
        observe(follower, window, -8.0, -8.0)
    assert (rank(follower), clamp(follower)) == (8, "r_min")  # 4.2 ms would be rank 3
    aligned = make([EQUAL, line(2.9e-3, 1e-4, 1.0)], 1, max_rank=32, min_rank=8, step_limit=4)
    for window, lead in enumerate((-8.0, -8.0, -9.0)):
        observe(aligned, window, lead, -8.0)
    assert (rank(aligned), clamp(aligned)) == (9, "step")  # the first stage went from 32 to 28: 3.8 ms are rank 9


def test_backward_times_are_warm_ups_median_and_then_fixed() -> None:
    lead, follower = (make([EQUAL] * 2, stage, max_rank=80, min_rank=8, warmup_fraction=0.05) for stage in range(2))
    for window, seconds in enumerate((50e-3, 1e-3, 1.1e-3, 0.0, 0.9e-3)):  # the first is cold, one was not timed
        observe(follower, window, -8.0, -8.0, backward=(seconds, 1.0))
        observe(lead, window, -8.0, -8.0)
    assert rank(lead) == 80
    for window, backward in ((5, 9.0), (6, 0.0)):
        for policy in (lead, follower):
            observe(policy, window, -9.0, -8.0, backward=(backward, backward))
        assert rank(lead) == 8
        assert rank(follower) in {18, 19}  # 1.05 ms later


def test_r_max_is_where_compression_stops_paying_and_r_min_a_share_of_it() -> None:
    policy = make([EQUAL], alignment=False, max_rank=None, min_rank_share=0.2)
    for window, entropy in enumerate((-8.0, -8.0, -20.0)):
        observe(policy, window, own=entropy)
        if window == 1:
            assert rank(policy) == 80
    assert rank(policy) == 16
    fast = make([line(1e-3, 1e-6, 1.0)], alignment=False)
    for window in range(2):
        observe(fast, window)
    assert rank(fast) == 256  # no matrix has more


@pytest.mark.parametrize("name", ["edgc", "edgc_released", "edgc_measured", "edgc_loss"])
def test_where_compression_never_pays_all_is_dense_and_one_line_says_so(name: str) -> None:
    options: dict[str, Any] = {"mean_rank": 8} if name == "edgc_measured" else {}
    kind = POLICIES[name]
    settings = kind.Settings(name=name, window=10, warmup_fraction=0.01, **options)
    policy = kind(settings, Context(1, 2, 1000, SHAPES, LEAD, [EQUAL, NEVER]))
    assert policy.note == (
        "stage 1: compression never pays on this link, it stays dense: "
        "an exchange takes 1 ms uncompressed and 1.2 ms at rank 2"
    )
    assert set(policy.clamps().values()) == {"never_pays"}
    for window in range(50):
        observe(policy, window, -8.0, -8.0)
        policy.observe(Observation(10 * window + 9, loss=5.0))
    assert {policy.decide(500).amount(name) for name in SHAPES} == {DENSE}
    assert set(policy.clamps().values()) == {"never_pays"}
    paying = kind(settings, Context(0, 2, 1000, SHAPES, LEAD, [EQUAL, NEVER]))
    assert paying.note == ""


def test_if_the_first_stage_never_pays_others_wait_for_its_uncompressed_exchange() -> None:
    lead, slow = line(1e-3, 1e-3, 2e-3), line(1e-3, 1e-4, 9e-3)
    follower = make([lead, slow], 1)
    for window in range(3):
        observe(follower, window, -8.0, -8.0, backward=(2e-3, 2e-3))
    assert rank(follower) == 30  # 2 ms + 2 ms
    assert make([lead, slow], 0).note.startswith("stage 0: compression never pays")
    same = make([NEVER, line(1e-3, 1e-4, 1.5e-3)], 1)
    for window in range(3):
        observe(same, window, -8.0, -8.0, backward=(2e-3, 2e-3))
    assert (rank(same), clamp(same)) == (None, "dense")


@pytest.mark.parametrize("alignment", [False, True])
@pytest.mark.parametrize(("before", "after"), [(EQUAL, NEVER), (NEVER, EQUAL), (EQUAL, None), (None, EQUAL)])
def test_a_start_that_timed_other_exchanges_goes_on_by_what_pays_now(
    before: ExchangeCost | None, after: ExchangeCost | None, alignment: bool
) -> None:
    """None: a start on one process, which exchanges nothing."""
    first, again = (make([cost], alignment=alignment, max_rank=None) for cost in (before, after))
    for window in range(3):
        observe(first, window, -8.0)
    again.load_state_dict(first.state_dict())
    for window in range(3, 6):
        decided = {plain(again.decide(10 * window).amount(name)) for name in LEAD}
        assert decided == ({80} if after is EQUAL else {plain(DENSE)})
        observe(again, window, -8.0)


def test_where_nothing_is_exchanged_nothing_is_compressed() -> None:
    alone = make([None, None], 1, max_rank=32)
    for window in range(3):
        observe(alone, window, -8.0, -8.0)
    assert {alone.decide(30).amount(name) for name in SHAPES} == {DENSE}
    assert alone.note == "stage 1 exchanges nothing that could be compressed: it stays dense"


def test_the_released_alignment_steps_by_four() -> None:
    """Interpolated times, floored to a multiple of 4, plus 4; no stage is left uncompressed."""
    costs = [EQUAL] * 3
    backward = (1.1e-3, 8e-3, 0.0)
    policies = [make(costs, stage, "edgc_released", max_rank=48, min_rank=8) for stage in range(3)]
    for policy in policies:
        for window, lead in enumerate((-8.0, -7.9, -7.85)):
            observe(policy, window, lead, -8.0, -8.0, backward=backward)
    assert rank(policies[0]) == 28  # 8 + 40 · 0.05 / 0.1
    assert rank(policies[1]) == 40  # 28 + 11 = 39: 36 + 4
    assert (rank(policies[2]), clamp(policies[2])) == (48, "r_max")


@pytest.mark.parametrize("options", [{"max_rank": None, "alignment": False}, {"max_rank": 32, "alignment": True}])
def test_a_policy_that_needs_costs_says_so(options: dict[str, Any]) -> None:
    kind = POLICIES["edgc"]
    settings = kind.Settings(name="edgc", **options)
    assert settings.needs_costs
    with pytest.raises(ValueError, match=r"Context\.costs has 0 of 1 stages: .*timed before the policy is made"):
        kind(settings, Context(0, 1, 230_000, SHAPES))
    assert not kind.Settings(name="edgc", max_rank=32).needs_costs


def test_a_first_stage_without_anything_to_compress_cannot_lead() -> None:
    with pytest.raises(UserError, match=r"method\.policy\.alignment = true: the first stage has nothing"):
        make([None, EQUAL], 1, max_rank=32)


def method(policy: dict[str, Any], aggregator: dict[str, Any] | None = None, **more: Any) -> Method:
    parts = {"name": "m", "title": "-", "source": "-", "summary": "-", "policy": policy}
    return Method.model_validate(parts | {"aggregator": aggregator or {"name": "lowrank"}} | more)


MEASURED = {"name": "edgc_measured", "mean_rank": 8}


@pytest.mark.parametrize(
    "aggregator",
    [{"name": "lowrank", "error_feedback": False}, {"name": "projection"}],
    ids=["forgets", "random basis"],
)
def test_a_policy_that_reads_spectra_needs_an_aggregator_that_has_them(aggregator: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"edgc_measured reads the spectrum .* lowrank with error_feedback: true"):
        method(MEASURED, aggregator)
    assert method(MEASURED)
    assert method({"name": "edgc_loss"}, aggregator)


def test_the_first_stage_must_be_among_those_that_compress() -> None:
    policy = {"name": "edgc", "alignment": True}
    with pytest.raises(ValueError, match=r"placement.stages \[1\] does not compress it; set alignment: false"):
        method(policy, placement={"stages": [1]})
    assert method(policy, placement={"stages": [0, 1]})
    assert method({"name": "edgc"}, placement={"stages": [1]})


def test_alignment_is_of_stages() -> None:
    with pytest.raises(ValueError, match="alignment true needs granularity stage, not matrix"):
        method({"name": "edgc", "alignment": True, "granularity": "matrix"})
