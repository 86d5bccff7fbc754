"""How much a compressed exchange lost, measured: ‖Ē‖/‖M̄‖ of the means over ranks. Ours; `edgc_measured` rests on
it."""

from __future__ import annotations

from collections.abc import Callable

from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.resumable import Resumable
from edgc.core.comm import Communicator

#: Tag and region of the measurement where only the records show it: kept apart from what methods cost.
OBSERVE = "observe"
SKETCH = 8  # columns; on real gradients the estimated error has a relative deviation of 5 to 7 %


class RelativeErrors(Resumable):
    """Collects decoded matrices with their residuals; `take` agrees on their relative errors.

    A rank's own residual also holds how its gradient differs from the others', which cancels in the mean Ē: a sum
    over ranks is needed, and a few random projections of E travel for it instead of the matrix.
    ‖M̄‖² = ‖Ĝ‖² + ‖Ē‖²: exact where the loss is orthogonal to what was kept, as in a low-rank projection.
    """

    kept = ("lost", "kept")

    def __init__(self, comm: Communicator, agreement: Communicator, sharded: Callable[[], bool]) -> None:
        """sharded: whether a rank of `comm` has a part of every average only."""
        self._comm, self._agreement, self._sharded = comm, agreement, sharded
        self._lost: dict[str, Tensor] = {}  # this rank's share of Ē V / √SKETCH, flat
        self._kept: dict[str, Tensor] = {}  # ‖Ĝ‖²

    def add(self, name: str, residual: Tensor, average: Tensor, seed: int) -> None:
        """Sketch a matrix's residual E (this rank's) and what it has of the average Ĝ; `seed` is equal on all ranks."""
        if residual.dim() == 2 and residual.shape[0] > residual.shape[1]:
            residual = residual.mT  # a sketch has as many rows as the matrix: the fewer, the fewer bytes
        columns = residual.numel() // len(residual)
        gaussian = torch.randn(columns, SKETCH, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
        projected = residual.reshape(-1, columns).float() @ gaussian.to(residual.device)
        self._lost[name] = projected.reshape(-1) / (SKETCH**0.5 * self._comm.size)
        self._kept[name] = average.float().square().sum()

    def take(self, tag: str = OBSERVE) -> dict[str, float]:
        """Relative errors in [0, 1] by name, mean over the agreement's ranks; forgets what it collected."""
        if not self._lost:
            return {}
        kept = torch.stack(list(self._kept.values()))
        sums = torch.cat([*self._lost.values(), *([kept] if self._sharded() else [])])
        self._comm.all_reduce(sums, tag=tag).wait()
        *parts, rest = sums.split([*(len(share) for share in self._lost.values()), len(kept) * self._sharded()])
        kept = rest if self._sharded() else kept
        squares = torch.stack([part.square().sum() for part in parts])
        errors = torch.nan_to_num((squares / (squares + kept)).sqrt())
        errors /= self._agreement.size  # tensor-parallel ranks hold other parts of the same parameter
        self._agreement.all_reduce(errors, tag=tag).wait()
        agreed = dict(zip(self._lost, errors.tolist(), strict=True))
        self._lost, self._kept = {}, {}
        return agreed
