"""GPT-2 in plain PyTorch under megatron's parameter names and layouts: the same gradients by name, without megatron."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgc.suite.backends.initial_values import initial_value
from edgc.suite.config import Model


class PlainGPT(nn.Module):
    """`forward` gives the mean loss in nats a token. Parameters have megatron's names, layouts and initial values.

    Exact GELU, tied embeddings, pre-norm blocks, learned positions; of q, k and v each head's lie beside each other.
    """

    def __init__(self, model: Model, vocab_size: int, seed: int) -> None:
        """`vocab_size`: rows of the word embedding, padding included."""
        super().__init__()
        words = nn.Embedding(vocab_size, model.hidden_size)
        positions = nn.Embedding(model.seq_length, model.hidden_size)
        self.embedding = nn.ModuleDict({"word_embeddings": words, "position_embeddings": positions})
        layers = nn.ModuleList(_Layer(model) for _ in range(model.num_layers))
        self.decoder = nn.ModuleDict({"layers": layers, "final_layernorm": nn.LayerNorm(model.hidden_size)})
        self._dropout = model.dropout
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(initial_value(name, parameter.shape, seed, model.num_layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """`tokens`: int64 [sequences, seq_length + 1]; the loss (scalar, fp32) is of the last seq_length."""
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        words, positions = self.embedding["word_embeddings"], self.embedding["position_embeddings"]
        x = words(inputs) + positions.weight[: inputs.shape[1]]
        x = functional.dropout(x, self._dropout, self.training)
        for layer in self.decoder["layers"]:  # type: ignore[union-attr]
            x = layer(x)
        logits = functional.linear(self.decoder["final_layernorm"](x), words.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class _Layer(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.hidden_size
        self._heads, self._dropout = model.num_heads, model.dropout
        self.input_layernorm = nn.LayerNorm(width)
        attention = {"linear_proj": nn.Linear(width, width), "linear_qkv": nn.Linear(width, 3 * width)}
        self.self_attention = nn.ModuleDict(attention)
        self.pre_mlp_layernorm = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"linear_fc1": nn.Linear(width, 4 * width), "linear_fc2": nn.Linear(4 * width, width)})

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.self_attention["linear_qkv"](self.input_layernorm(x))
        q, k, v = qkv.unflatten(-1, (self._heads, 3, -1)).movedim(1, 2).unbind(3)  # [sequences, heads, length, …]
        dropout = self._dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        attended = self.self_attention["linear_proj"](mixed.movedim(1, 2).flatten(2))
        x = x + functional.dropout(attended, self._dropout, self.training)
        hidden = functional.gelu(self.mlp["linear_fc1"](self.pre_mlp_layernorm(x)))
        return x + functional.dropout(self.mlp["linear_fc2"](hidden), self._dropout, self.training)
