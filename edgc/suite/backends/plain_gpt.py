"""GPT-2 in plain PyTorch under megatron's parameter names and layouts: the same gradients by name, without megatron."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgc.suite.backends.gpt2 import initial_value
from edgc.suite.config import Model


class PlainGPT(nn.Module):
    """`forward` gives the mean loss in nats a token. Parameters have megatron's names, layouts and initial values.

    Exact GELU, tied embeddings, pre-norm blocks, learned positions; of q, k and v each head's lie beside each other.
    While it trains, the loss has the gradient of the experts' balance too, which its value does not show.
    """

    embedding: nn.ModuleDict
    decoder: nn.ModuleDict

    def __init__(self, model: Model, vocab_size: int, seed: int) -> None:
        """`vocab_size`: rows of the word embedding, padding included."""
        super().__init__()
        words = nn.Embedding(vocab_size, model.hidden_size)
        positions = nn.Embedding(model.seq_length, model.hidden_size)
        self.embedding = nn.ModuleDict({"word_embeddings": words, "position_embeddings": positions})
        layers = nn.ModuleList(_Layer(model) for _ in range(model.num_layers))
        self.decoder = nn.ModuleDict({"layers": layers, "final_layernorm": nn.LayerNorm(model.hidden_size)})
        self._dropout, self._balance = model.dropout, model.balance if model.experts else 0.0
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(initial_value(name, parameter.shape, seed, model.num_layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """`tokens`: int64 [sequences, seq_length + 1]; the loss (scalar, fp32) is of the last seq_length."""
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        words: Any = self.embedding["word_embeddings"]
        positions: Any = self.embedding["position_embeddings"]
        x = words(inputs) + positions.weight[: inputs.shape[1]]
        x = functional.dropout(x, self._dropout, self.training)
        balances = []
        for layer in self.decoder["layers"]:  # type: ignore[union-attr]
            x, balance = layer(x)
            balances.append(balance)
        logits = functional.linear(self.decoder["final_layernorm"](x), words.weight)
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        if not (self._balance and self.training):
            return loss
        balance = self._balance * torch.stack(balances).sum()
        return loss + (balance - balance.detach())


class _Layer(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.hidden_size
        self._heads, self._dropout = model.num_heads, model.dropout
        self.input_layernorm = nn.LayerNorm(width)
        attention = {"linear_proj": nn.Linear(width, width), "linear_qkv": nn.Linear(width, 3 * width)}
        self.self_attention = nn.ModuleDict(attention)
        self.pre_mlp_layernorm = nn.LayerNorm(width)
        self.mlp = Experts(width, model.experts, model.top_k) if model.experts else _MLP(width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The layer's output, and how evenly its experts are used, if it has some."""
        qkv = self.self_attention["linear_qkv"](self.input_layernorm(x))
        q, k, v = qkv.unflatten(-1, (self._heads, 3, -1)).movedim(1, 2).unbind(3)  # [sequences, heads, length, …]
        dropout = self._dropout if self.training else 0.0
        mixed = _attention(q, k, v, dropout)
        attended = self.self_attention["linear_proj"](mixed.movedim(1, 2).flatten(2))
        x = x + functional.dropout(attended, self._dropout, self.training)
        normed = self.pre_mlp_layernorm(x)
        out, balance = self.mlp(normed) if isinstance(self.mlp, Experts) else (self.mlp(normed), None)
        return x + functional.dropout(out, self._dropout, self.training), balance


class _MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear_fc1, self.linear_fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_fc2(functional.gelu(self.linear_fc1(x)))


class Experts(nn.Module):
    """MLPs, of which each token has `top_k`, without a limit to an expert's tokens: megatron's MoELayer in plain torch.

    With `moe_router_pre_softmax`, that is: y = Σ pᵢ(x) MLPᵢ(x) over the `top_k` largest p = softmax(router(x)). The
    parameters of an expert that no token has get no gradient. megatron-core 0.16's own layer does not run with biases
    and without Transformer Engine: it adds the bias in place to a view that autograd refuses.
    """

    def __init__(self, width: int, experts: int, top_k: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleDict({"local_experts": nn.ModuleList(_MLP(width) for _ in range(experts))})
        self._top_k = top_k

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x`: [..., width]. The same, and E Σ fᵢ Pᵢ (Switch): fᵢ is expert i's share of the choices, Pᵢ its mean p."""
        tokens = x.flatten(0, -2)
        p = self.router(tokens).softmax(-1, dtype=torch.float32)  # [tokens, experts]
        weights, chosen = p.topk(self._top_k)
        mixed = torch.zeros_like(tokens, dtype=torch.float32)
        for number, expert in enumerate(self.experts["local_experts"]):  # type: ignore[arg-type]
            rows, choice = (chosen == number).nonzero(as_tuple=True)
            if len(rows):
                mixed = mixed.index_add(0, rows, expert(tokens[rows]) * weights[rows, choice, None])
        shares = chosen.flatten().bincount(minlength=p.shape[1]) / chosen.numel()
        return mixed.view_as(x).to(x.dtype), p.shape[1] * (shares * p.mean(0)).sum()


def _attention(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """Causal attention. A CPU's fused kernel takes three times as long in bf16 as these two products."""
    if q.device.type != "cpu" or q.dtype != torch.bfloat16:
        return functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    hidden = torch.full((q.shape[-2], q.shape[-2]), -torch.inf).triu(1)
    shares = torch.softmax(torch.add(hidden, (q @ k.mT).float(), alpha=q.shape[-1] ** -0.5), -1)
    return functional.dropout(shares, dropout, dropout > 0).to(q.dtype) @ v
