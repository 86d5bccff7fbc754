"""Our layer of experts beside megatron's, both without biases, with which megatron's does not run here. One process.

Prints the largest relative difference of outputs and gradients, by `top_k`.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from common import run_spec
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.transformer_config import TransformerConfig

from edgc.suite.backends.megatron.process import join, leave
from edgc.suite.backends.plain_gpt import Experts

WIDTH, EXPERTS, BALANCE = 16, 4, 0.1


def main() -> None:
    join(run_spec(1, 1, 1, "dense"))
    moe_utils.te_general_gemm = None  # type: ignore[attr-defined]  # which it asks for without having imported it
    print(json.dumps({top_k: difference(top_k) for top_k in (1, 2)}))
    leave()


def difference(top_k: int) -> float:
    config = TransformerConfig(
        num_layers=1,
        hidden_size=WIDTH,
        num_attention_heads=2,
        use_cpu_initialization=True,
        add_bias_linear=False,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
        num_moe_experts=EXPERTS,
        moe_router_topk=top_k,
        moe_router_pre_softmax=True,
        moe_router_load_balancing_type="aux_loss",
        moe_aux_loss_coeff=BALANCE,
        moe_token_dispatcher_type="allgather",
    )
    submodules: Any = get_gpt_layer_local_spec(num_experts=EXPERTS).submodules
    theirs = MoELayer(config, submodules.mlp.submodules, layer_number=1)
    ours = Experts(WIDTH, EXPERTS, top_k)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.zero_() if name.endswith("bias") else parameter.copy_(dict(theirs.named_parameters())[name])
    x = torch.randn(6, 2, WIDTH, generator=torch.Generator().manual_seed(top_k))
    (mine, balance), (other, _) = ours(x), theirs(x)
    ((mine**2).sum() + BALANCE * balance).backward()
    (other**2).sum().backward()
    found = [(mine, other)]
    for name, parameter in theirs.named_parameters():
        own, their = dict(ours.named_parameters())[name].grad, parameter.grad
        assert (own is None or not own.any()) == (their is None or not their.any()), name
        if own is not None and their is not None:
            found.append((own, their))
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in found)


if __name__ == "__main__":
    main()
