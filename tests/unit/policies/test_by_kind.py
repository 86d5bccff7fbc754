"""A name says a parameter's kind, and its kind how much of it travels."""

from __future__ import annotations

from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import DENSE, ON, Bits, Rank, Ratio
from edgc.core.policies.by_kind import kind_of, scaled
from edgc.core.settings.assembly import assemble
from edgc.suite.config import Method, load

NAMES = {
    "embedding.word_embeddings.weight": "embedding",
    "output_layer.weight": "embedding",
    "transformer.wpe.weight": "embedding",
    "decoder.layers.3.self_attention.linear_qkv.weight": "attention",
    "transformer.h.0.attn.c_proj.weight": "attention",
    "decoder.layers.3.mlp.linear_fc1.weight": "mlp",
    "decoder.layers.3.mlp.router.weight": "router",
    "decoder.layers.3.mlp.experts.local_experts.2.linear_fc1.weight": "expert",
    "decoder.layers.3.pre_mlp_layernorm.weight": None,
    "head.weight": None,
}


def test_kinds_by_names() -> None:
    assert {name: kind_of(name) for name in NAMES} == NAMES


def test_amounts_are_scaled_within_what_they_can_be() -> None:
    amounts = {Rank(4): Rank(2), Rank(1): Rank(1), Bits(8): Bits(4), Ratio(0.5): Ratio(0.25), ON: ON, DENSE: DENSE}
    assert {amount: scaled(amount, 0.5) for amount in amounts} == amounts
    assert (scaled(Ratio(0.5), 3), scaled(Bits(8), 9), scaled(Rank(3), 1)) == (Ratio(1), Bits(32), Rank(3))


def method(**changes: Any) -> Method:
    return validate(Method, merge(load(Method, "powersgd").model_dump(), changes), "method")


def test_every_kind_has_its_rank_and_others_the_policy_s() -> None:
    chosen = method(policy={"rank": 4}, placement={"scale": {"expert": 0.5, "attention": 2}})

    def ranks(comm: LoopbackCommunicator) -> dict[str, int]:
        made, _ = assemble(chosen, dict.fromkeys(NAMES, (64, 64)), 10, 0, comm, "cpu")
        return {record["parameter"]: record["rank"] for record in made.decisions(0)}

    expected = {name: {"expert": 2, "attention": 8}.get(kind or "", 4) for name, kind in NAMES.items()}
    assert run_ranks(1, ranks) == [expected]


BITS = {"rank": None, "bits": 4}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"placement": {"scale": {"experts": 2}}}, "experts"),
        ({"placement": {"scale": {"expert": 0}}}, "greater than 0"),
        ({"aggregator": {"name": "few_bits"}, "policy": BITS, "placement": {"scale": {"mlp": 0.75}}},
         r"placement.scale.mlp 0.75: bits 3: aggregator few_bits with format int has codes of"),
        ({"aggregator": {"name": "dense"}, "policy": {"rank": None}, "placement": {"scale": {"mlp": 2}}},
         "policy fixed decides nothing that could be scaled"),
    ],
)  # fmt: skip
def test_scales_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    plain = {key: value for key, value in load(Method, "powersgd").model_dump().items() if key != "aggregator"}
    plain["aggregator"] = {"name": "lowrank"}
    with pytest.raises(UserError, match=said):
        validate(Method, merge(plain, changes), "method")
