"""Dion: momentum of hidden matrices crosses as factors, and parameters move along their orthonormal part.

Ahn et al. 2025, arXiv 2504.05295, with data parallelism; Orth-Dion (arXiv 2605.16341) normalises by a QR. Of a
hidden matrix X (m×n) with momentum M on each rank: M ← M + G; P, R ← factors of the mean of M, P with orthonormal
columns; M ← M − (1 − μ) P Rᵀ; Q ← R, normalised; X ← (1 − η λ) X − η √(m/n) P Qᵀ. The factors are the aggregator's:
PowerSGD's P̂ and Q, without error feedback, as M itself keeps what was not sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from edgc.core.aggregators.aggregator import AggregatorSettings, NamedTensor
from edgc.core.aggregators.workload import Kernel, Shape, elements, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.policies.policy import PolicySettings
from edgc.core.synchronisation.in_place import InPlace, InPlaceSettings, zeros
from edgc.core.synchronisation.synchronisation import Replica, tensors

EPSILON = 1e-8  #: added to a column's length, as in the authors' code
#: Parts of the names of matrices that are not hidden: the embeddings, and the last stage's copy of the word embedding.
NOT_HIDDEN = ("word_embeddings", "position_embeddings", "output_layer")
#: Of Muon's Newton–Schulz iteration (Jordan et al. 2024): as in the authors' code and torch.optim.Muon.
COEFFICIENTS, STEPS, SMALLEST_NORM = (3.4445, -4.7750, 2.0315), 5, 1e-7


class DionSettings(InPlaceSettings):
    """Dion's settings, and the paper's values."""

    name: Literal["dion"]
    momentum: float = Field(0.95, ge=0, lt=1, description="μ: what a step leaves in M of what it has sent")
    normalise: Literal["columns", "qr"] = Field(
        "columns", description="How Q is made from R. columns: each to length 1 (Dion); qr: orthonormal (Orth-Dion)"
    )
    lr_ratio: PositiveFloat = Field(1.0, description="Learning rate of hidden matrices as a multiple of training.lr")
    adamw: tuple[str, ...] = Field(
        NOT_HIDDEN, description="Substrings of the names of matrices that AdamW updates, as it does vectors"
    )
    updates: ClassVar[bool] = True
    whole_matrices: ClassVar[bool] = True
    no_hook: ClassVar[str] = "updates parameters itself, and a hook sees gradients only"

    def refuses(self, aggregator: AggregatorSettings, policy: PolicySettings) -> str | None:
        if aggregator.keeps_residual:
            return "keeps what was not sent in the momentum; use an aggregator without error feedback"
        return None

    def owns(self, name: str, shape: Shape) -> bool:
        """Whether Dion updates this parameter."""
        return is_hidden(name, shape, self.adamw)

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """M ← M + G; G ← M; M ← M − (1 − μ) P Rᵀ."""
        return memory_passes(elements, 3), memory_passes(elements, 2), memory_passes(elements, 3)

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """M."""
        return 4 * elements([shape for name, shape in shapes.items() if self.owns(name, shape)])


class Dion(InPlace):
    """What travels as no factors (an average of another aggregator, or dense) is made semi-orthogonal as Muon does.

    AdamW's gradients are averaged, and clipped by their own norm; M takes this rank's gradients as they are.
    """

    Settings = DionSettings
    settings: DionSettings
    kept = ("momentum",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._momentum: dict[str, Tensor] = {}  # M
        self.exchange.aggregator.keeps_factors = True

    def begin_step(self, step: int, replica: Replica | None = None) -> None:
        super().begin_step(step, replica)
        own = [t for t in tensors(self._replica) if self.settings.owns(t.name, tuple(t.tensor.shape))]
        self.own = [t.name for t in own]
        for t in own:
            zeros(self._momentum, t)

    def forget(self) -> None:
        """M holds what its rank has not sent: without the other ranks' it is no momentum."""
        self._momentum = {}

    def prepare(self, gradients: Sequence[NamedTensor]) -> None:
        for t in self._own(gradients):
            t.tensor.copy_(self._momentum[t.name].add_(t.tensor))

    def take(self, gradients: Sequence[NamedTensor]) -> None:
        for t in self._own(gradients):
            self._momentum[t.name].sub_(t.tensor, alpha=1 - self.settings.momentum)

    def _own(self, gradients: Sequence[NamedTensor]) -> list[NamedTensor]:
        return [t for t in gradients if t.name in self._momentum]

    def update(self, step: int, replica: Replica) -> None:
        rate = replica.lr * self.settings.lr_ratio
        with torch.no_grad():
            for t in self._own(tensors(replica)):
                parameter = replica.parameters[t.name]
                parameter.mul_(1 - rate * replica.weight_decay(t.name))
                rows, columns = parameter.shape
                parameter.sub_(self._direction(t), alpha=rate * (rows / columns) ** 0.5)
            replica.changed()

    def _direction(self, average: NamedTensor) -> Tensor:
        factors = self.exchange.aggregator.factors(average.name)
        if factors is None:
            return semi_orthogonal(average.tensor)
        p_mr, r_nr = factors
        if self.settings.normalise == "columns":
            return p_mr @ (r_nr / (r_nr.norm(dim=0) + EPSILON)).mT
        basis, triangle = torch.linalg.qr(r_nr)
        return p_mr @ (basis * triangle.diagonal().sign()).mT  # a column that points away from R's would climb


def is_hidden(name: str, shape: Shape, others: tuple[str, ...] = NOT_HIDDEN) -> bool:
    """Whether a parameter is a hidden matrix, which Muon and Dion update: its name holds none of `others`."""
    return len(shape) == 2 and not any(part in name for part in others)


def semi_orthogonal(matrix: Tensor) -> Tensor:
    """U S Vᵀ of a matrix with singular vectors U and V, where S is diagonal with values about 1. In its own precision.

    Of zeros it gives zeros. The matrix is not changed.
    """
    a, b, c = COEFFICIENTS
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
    x = wide / wide.norm().clamp(min=SMALLEST_NORM)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrix else x.mT
