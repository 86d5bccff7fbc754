"""What `edgc plan --memory` says: bytes a device needs by category, method and pipeline stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from edgc.cluster.memory import GB, memory_by_stage
from edgc.config import Calibration, Method, RunSpec


def rows(spec: RunSpec, methods: Iterable[Method], calibration: Calibration, precision: str) -> list[dict[str, Any]]:
    """A row a method and stage, sizes in GB; `fits` is null where the calibration does not know the device's memory."""
    has = calibration.memory_gbyte
    return [
        {
            "method": method.name,
            "stage": stage,
            "model_gbyte": needed.model / GB,
            "method_gbyte": needed.method / GB,
            "activations_gbyte": needed.activations / GB,
            "total_gbyte": needed.total / GB,
            "device_gbyte": has,
            "fits": None if has is None else needed.total <= GB * has,
        }
        for method in methods
        for stage, needed in enumerate(memory_by_stage(spec.model_copy(update={"method": method}), precision))
    ]


def show(found: Sequence[dict[str, Any]], spec: RunSpec, calibration: Calibration, precision: str) -> None:
    """Print it."""
    p, has = spec.parallel, calibration.memory_gbyte
    device = calibration.device_model + (f" of {has:g} GB" if has is not None else ", whose memory is not known")
    console = Console(highlight=False)
    console.print(
        f"[bold]{spec.model.name}, {precision}, tensor {p.tensor} × pipeline {p.pipeline} × data {p.data}, micro-batch "
        f"{spec.training.micro_batch}, on {device}[/bold]"
    )
    table = Table("method", "stage", "model", "method", "activ.", "total", "fits", box=box.SIMPLE_HEAD)
    for row in found:
        sizes = (f"{row[name]:.2f}" for name in ("model_gbyte", "method_gbyte", "activations_gbyte", "total_gbyte"))
        table.add_row(row["method"], str(row["stage"]), *sizes, {True: "yes", False: "no", None: "?"}[row["fits"]])
    console.print(table)
    console.print(
        "GB a device. model: parameters, gradients, Adam. method: what it keeps from step to step. activ.: activations "
        "at the fullest moment. Not counted: what CUDA and NCCL take for themselves, about 1 to 2 GB."
    )
