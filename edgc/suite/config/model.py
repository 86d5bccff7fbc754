"""What is trained: configs/models/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from edgc.core.base.settings import younger
from edgc.core.settings.reading import Named

#: The tied word embedding's names on the first and on the last of several pipeline stages.
TIED = ("embedding.word_embeddings.weight", "output_layer.weight")


class Model(Named):
    """A GPT-2: learned positions, pre-layer-norm, GELU, tied embeddings (configs/models/)."""

    folder: ClassVar[str] = "models"

    num_layers: PositiveInt = Field(description="Transformer layers")
    hidden_size: PositiveInt = Field(description="Width of the residual stream")
    num_heads: PositiveInt = Field(description="Attention heads")
    seq_length: PositiveInt = Field(description="Tokens in a sequence")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout of attention, hidden states and embeddings")
    vocab_multiple: PositiveInt = Field(128, description="The vocabulary is padded to a multiple of this")
    experts: NonNegativeInt = younger(
        0, description="MLPs of a layer, among which a router chooses for each token; 0: one, without a router"
    )
    top_k: PositiveInt = younger(
        1, description="Experts of a token; their outputs are weighted by the router's softmax"
    )
    balance: NonNegativeFloat = younger(
        0.01, description="Weight of the auxiliary loss that spreads tokens over experts (arXiv 2101.03961, eq. 4)"
    )

    def refusals(self) -> Iterator[str]:
        if self.hidden_size % self.num_heads:
            yield f"hidden_size {self.hidden_size} must be a multiple of num_heads {self.num_heads}"
        if self.experts == 1:
            yield "experts 1: a router has nothing to choose; use 0, or at least 2"
        if self.top_k > max(1, self.experts):
            yield f"top_k {self.top_k} must be at most experts {self.experts}"
