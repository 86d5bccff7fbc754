"""What `edgc plan --memory` says: bytes a device needs by category, method and pipeline stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from edgc.suite.cluster.ask import of_method
from edgc.suite.cluster.memory import CATEGORIES, GB, memory_by_stage
from edgc.suite.config import Calibration, Method, RunSpec

HEADINGS = dict(zip(CATEGORIES, ("param.", "grad.", "adam", "errors", "activ.", "buffers"), strict=True))


def rows(spec: RunSpec, methods: Iterable[Method], calibration: Calibration, precision: str) -> list[dict[str, Any]]:
    """A row a method and stage, sizes in GB; `fits` is null where the calibration does not know the device's memory."""
    has = calibration.memory_gbyte
    return [
        {
            "method": method.name,
            "stage": stage,
            **{f"{name}_gbyte": getattr(needed, name) / GB for name in CATEGORIES},
            "total_gbyte": needed.total / GB,
            "device_gbyte": has,
            "fits": None if has is None else needed.total <= GB * has,
        }
        for method in methods
        for stage, needed in enumerate(memory_by_stage(of_method(spec, method), precision))
    ]


def show(found: Sequence[dict[str, Any]], spec: RunSpec, calibration: Calibration, precision: str) -> None:
    """Print it."""
    p, t, has = spec.parallel, spec.training, calibration.memory_gbyte
    device = calibration.device_model + (f" of {has:g} GB" if has is not None else ", whose memory is not known")
    console = Console(highlight=False)
    console.print(
        f"[bold]{spec.model.name}, {precision}, tensor {p.tensor} × pipeline {p.pipeline} × data {p.data}, micro-batch "
        f"{t.micro_batch}, shard {t.shard}, on {device}[/bold]"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("method", overflow="fold")
    for heading in ("stage", *HEADINGS.values(), "total", "fits"):
        table.add_column(heading, no_wrap=True, justify="right")
    for row in found:
        sizes = (f"{row[f'{name}_gbyte']:.2f}" for name in (*HEADINGS, "total"))
        table.add_row(row["method"], str(row["stage"]), *sizes, {True: "yes", False: "no", None: "?"}[row["fits"]])
    console.print(table)
    console.print(
        "GB a device. adam: its moments, and fp32 copies of bf16 parameters. errors: what the method keeps from step "
        "to step. activ.: activations at the fullest moment. buffers, only with shards: exact copies of rounded "
        "parameters, or gathered layers and a layer's gradients. Not counted: what an exchange takes after backward, "
        "when activations are gone, and what CUDA and NCCL take for themselves, about 1 to 2 GB."
    )
