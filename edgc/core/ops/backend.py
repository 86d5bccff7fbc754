"""Which implementation of an operation runs: torch, or Triton's kernels where there is a GPU."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, TypeVar, cast

from edgc.core.base.errors import UserError
from edgc.core.base.lazy import Tensor, torch

Backend = Literal["auto", "torch", "triton"]
F = TypeVar("F", bound=Callable[..., Any])

_chosen: Backend = "auto"


def choose(backend: Backend, device: str) -> None:
    """Set the implementation for this process, whose gradients lie on `device` ("cpu" or "cuda").

    Raises `UserError` if `triton` cannot run there.
    """
    global _chosen
    if backend == "triton" and (reason := missing(device)):
        raise UserError(f"kernels = triton: {reason}; or use kernels = auto")
    _chosen = backend


def missing(device: str) -> str | None:
    """What Triton's kernels lack to run on `device`; None: nothing."""
    if importlib.util.find_spec("triton") is None:
        return 'the package triton is not installed: pip install "edgc[cuda]", or make setup BUILD=cuda'
    if device == "cpu" and os.environ.get("TRITON_INTERPRET", "0") in ("", "0"):
        return "on a CPU its kernels run only in Triton's interpreter (TRITON_INTERPRET=1), for tests"
    return None


def dispatched(reference: F, of: Callable[..., Sequence[Tensor]]) -> F:
    """The operation `reference` of a module `edgc.core.ops.<op>.reference`, run by the implementation that was chosen.

    `edgc.core.ops.<op>.triton` has a function of its name and arguments. `of` names, from the arguments, the tensors
    that decide: `auto` takes Triton's for those on a GPU, all of one precision that the kernels know. Raises
    `UserError` if `triton` was chosen for others.
    """

    @wraps(reference)
    def operation(*arguments: Any, **options: Any) -> Any:
        if not _on_triton(of(*arguments, **options)):
            return reference(*arguments, **options)
        kernels = importlib.import_module(reference.__module__.replace(".reference", ".triton"))
        return getattr(kernels, reference.__name__)(*arguments, **options)

    return cast(F, operation)


def _on_triton(tensors: Sequence[Tensor]) -> bool:
    if _chosen == "torch" or not tensors or (_chosen == "auto" and (not tensors[0].is_cuda or missing("cuda"))):
        return False
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) == 1 and kinds <= {torch.float32, torch.bfloat16, torch.float16}:
        return True
    if _chosen == "auto":
        return False
    found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
    raise UserError(f"kernels = triton: gradients of {found}; allowed: one of float32, bfloat16, float16; or use auto")
