"""What is trained: configs/models/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, PositiveInt

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

    def refusals(self) -> Iterator[str]:
        if self.hidden_size % self.num_heads:
            yield f"hidden_size {self.hidden_size} must be a multiple of num_heads {self.num_heads}"
