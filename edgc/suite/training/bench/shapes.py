"""The matrices of one pipeline stage of the models that are benchmarked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from edgc.suite.config import CONFIGS, Model, load


class ShapeSet(NamedTuple):
    """The matrices of the transformer layers of one stage, on one tensor-parallel rank. Embeddings are left out."""

    name: str
    shapes: list[tuple[int, int]]  #: rows and columns, in the order of the layers

    @property
    def numel(self) -> int:
        """Elements of all matrices."""
        return sum(m * n for m, n in self.shapes)

    @property
    def words(self) -> str:
        """As printed in the column `shape`."""
        return f"{len(self.shapes)} matrices, {self.numel / 1e6:.1f}M"


#: Name, model, pipeline stages and tensor-parallel degree: the paper's, and a small model whole.
STAGES = (
    ("gpt2-124m", "gpt2-124m", 1, 1),
    ("gpt2-2.5b/TP4", "gpt2-2.5b", 4, 4),
    ("gpt2-12.1b/TP4", "gpt2-12.1b", 4, 4),
)


def shape_sets(names: list[str] | None = None, configs: Path = CONFIGS) -> list[ShapeSet]:
    """Those of `STAGES` with these names, or all."""
    found = []
    for name, model_name, stages, tensor in STAGES:
        if names is None or name in names:
            model = load(Model, model_name, configs)
            found.append(ShapeSet(name, _layer(model.hidden_size, tensor) * (model.num_layers // stages)))
    return found


def _layer(hidden: int, tensor: int) -> list[tuple[int, int]]:
    """Weights of a GPT-2 layer as megatron-core splits them: QKV and the first MLP matrix by rows, the others by
    columns."""
    return [
        (3 * hidden // tensor, hidden),
        (hidden, hidden // tensor),
        (4 * hidden // tensor, hidden),
        (hidden, 4 * hidden // tensor),
    ]
