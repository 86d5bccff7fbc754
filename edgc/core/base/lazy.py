"""torch and pandas, imported at first use.

A method's file holds its settings and payload formula (read by `edgc methods`, the schema, Snakemake and the
cluster model, none of which need torch) beside its tensor code. This keeps it one file and those fast. So it is with
pandas, and what `edgc plan` and `edgc recommend` share with the page.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _LazyModule:
    """A module imported when an attribute is first asked for, and not in `sys.modules` before: libraries that
    look there to see whether torch is in use (scipy does) would import it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)  # the next access does not come here
        return value


if TYPE_CHECKING:
    import pandas as pd
    import torch
    import torch.distributed as dist
    from torch import Tensor
else:
    Tensor = Any  # for annotations; isinstance refuses it
    pd = _LazyModule("pandas")
    torch = _LazyModule("torch")
    dist = _LazyModule("torch.distributed")

__all__ = ["Tensor", "dist", "pd", "torch"]
