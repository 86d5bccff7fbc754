"""The least time that each launch of a dry run would take on V100, A100 and H100, and what it takes of them.

A bound, not a time: nothing was run. It is the longest of what the memory, the L2 and the arithmetic would each take
at the rates of the data sheets. It assumes that nothing lies in the L2 before a launch, and that programs do not find
in the L1 what others have read. Latency, which binds where a multiprocessor holds few programs, is not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
from triton.backends.compiler import GPUTarget

from edgc.core.ops.kernel_launch import precision_of
from edgc.suite.config import RunSpec
from edgc.tools.dry import tables
from edgc.tools.dry.compilation import CUOBJDUMP, Resources, Source, resources
from edgc.tools.dry.data_sheets import LANES, MODELS, PORT_BYTES_CLOCK, DeviceModel, blocks_of_multiprocessor
from edgc.tools.dry.job import Records
from edgc.tools.dry.traffic import Traffic

MEGA, GIGA, TERA, MICRO = 1e6, 1e9, 1e12, 1e-6
#: Constants that tell a reader which specialisation it is.
TELLING = ("GRAD", "ERROR", "WHOLE", "KIND", "RANK", "BLOCKS", "WEIGHTED", "GRAM", "ADD", "BITS", "EACH", "NORMS")


def roofline(specs: Sequence[RunSpec], records: Records) -> pd.DataFrame:
    """A row for each launch of the last steps that differs from others in kernel, specialisation or size, and device.

    `launches`: how many a step. MB are asked for by programs; `once`: if every element is moved once.
    """
    compiled = _Compiled()
    rows = []
    for spec, rank, record in tables.each_rank(specs, records):
        sources = {(one["kernel"], one["key"]): one["source"] for one in record.get("launches", ()) if one["source"]}
        same = Counter(
            (one["kernel"], one["key"], one["grid"][0], Traffic(**one["traffic"]))
            for one in tables.counted(record, "launches")
        )
        for (kernel, key, programs, moved), times in same.items():
            source = Source(**sources[kernel, key])
            who = tables.who(spec, rank) | {
                "kernel": kernel,
                "specialisation": _telling(source),
                "launches": times / tables.COUNTED,
                "programs": programs,
            }
            for model in MODELS.values():
                rows.append(who | _row(model, source, programs, moved, compiled))
    return pd.DataFrame(rows)


def steps(frame: pd.DataFrame) -> pd.DataFrame:
    """Of a step: what all launches of a method move, and their bounds one after another."""
    names = ["model", "method", "stage", "device"]
    parts = frame.assign(
        asked_gbyte=frame["launches"] * (frame["read_mbyte"] + frame["written_mbyte"]) * MEGA / GIGA,
        once_gbyte=frame["launches"] * (frame["read_once_mbyte"] + frame["written_once_mbyte"]) * MEGA / GIGA,
        bound_ms=frame["launches"] * frame["bound_us"] / 1e3,
    )
    sums = parts.groupby(names, sort=False)[["launches", "asked_gbyte", "once_gbyte", "bound_ms"]].sum()
    worst = parts.loc[parts.groupby(names, sort=False)["bound_ms"].idxmax()].set_index(names)
    return sums.assign(longest=worst["kernel"].str.removesuffix("_kernel"), binds=worst["binds"]).reset_index()


def bounds(model: DeviceModel, programs: int, moved: Traffic) -> dict[str, float]:
    """Seconds that a launch takes at least, by what would bind it."""
    clock = model.clock_ghz * GIGA
    share = min(1, programs / model.multiprocessors)  # of the multiprocessors that have something to do
    of_l2 = min(model.l2_bytes_clock, PORT_BYTES_CLOCK * model.multiprocessors * share) * clock
    products = TERA * (model.fp32_tflops if model.tf32_tflops is None else model.tf32_tflops / 3)  # see precision_of
    return {
        "memory": (moved.read_once + moved.written_once) / (model.memory_gbyte_s * GIGA),
        "L2": max(moved.read, moved.written) / of_l2,  # there is a way for each direction
        "arithmetic": moved.flops / (products * share),
    }


class _Compiled:
    """What specialisations take, each compiled once a device."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Resources] = {}

    def of(self, source: Source, model: DeviceModel) -> Resources:
        """Raises what `resources` raises."""
        key = model.name, str(source)
        if key not in self._found:
            major, minor = model.capability
            target = GPUTarget("cuda", 10 * major + minor, LANES)
            self._found[key] = resources(source.multiplying_in(precision_of(model.capability)).compiled(target))
        return self._found[key]


def _row(model: DeviceModel, source: Source, programs: int, moved: Traffic, compiled: _Compiled) -> dict[str, Any]:
    found = bounds(model, programs, moved)
    binds = max(found, key=lambda name: found[name])
    once = moved.read_once + moved.written_once
    return (
        {"device": model.name, "read_mbyte": moved.read / MEGA, "written_mbyte": moved.written / MEGA}
        | {"read_once_mbyte": moved.read_once / MEGA, "written_once_mbyte": moved.written_once / MEGA}
        | {"gflop": moved.flops / GIGA, "flop_per_byte": moved.flops / once if once else 0.0}
        | _taken(model, source, programs, compiled)
        | {f"{name.lower()}_us": seconds / MICRO for name, seconds in found.items()}
        | {"bound_us": found[binds] / MICRO, "binds": binds}
    )


def _taken(model: DeviceModel, source: Source, programs: int, compiled: _Compiled) -> dict[str, Any]:
    """Of a multiprocessor. `waves`: how often all multiprocessors would be filled. Nothing without cuobjdump."""
    names = ("warps", "registers", "spilled", "shared", "blocks", "waves")
    if not CUOBJDUMP.exists():
        return dict.fromkeys(names)
    one = compiled.of(source, model)
    blocks = blocks_of_multiprocessor(model, one.registers, one.shared, one.warps)
    waves = programs / (blocks * model.multiprocessors)
    return dict(zip(names, (one.warps, one.registers, one.spilled, one.shared, blocks, waves), strict=True))


def _telling(source: Source) -> str:
    said = ((name, source.constants[name]) for name in TELLING if name in source.constants)
    return " ".join(f"{name}={value['dtype'] if isinstance(value, dict) else value}" for name, value in said)
