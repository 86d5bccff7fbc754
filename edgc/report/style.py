"""How figures look: one colour, marker and dash a method everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from edgc.core.comm.telemetry import Region


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    marker: str  #: see `MARKERS`
    dash: str  #: see `DASHES`
    fill: str = ""  #: of the marker, where that is not its colour


#: Okabe and Ito's palette, which colour-blind readers can tell apart, less its yellow (too faint on white).
PALETTE = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
#: Vega's symbols, and paths in a square from -1 to 1.
MARKERS = {
    "circle": "circle",
    "square": "square",
    "triangle-up": "triangle-up",
    "diamond": "diamond",
    "triangle-down": "triangle-down",
    "cross": "cross",
    "x": "M-.9-.4L-.4-.9L0-.5L.4-.9L.9-.4L.5 0L.9 .4L.4 .9L0 .5L-.4 .9L-.9 .4L-.5 0Z",
    "triangle-left": "triangle-left",
    "triangle-right": "triangle-right",
    "pentagon": "M0-1L.95-.31L.59 .81L-.59 .81L-.95-.31Z",
    "hexagon": "M0-1L.87-.5L.87 .5L0 1L-.87 .5L-.87-.5Z",
}
DASHES = {"solid": [1, 0], "dashed": [6, 3], "dotted": [2, 2], "dashdot": [7, 2, 2, 2]}  #: pixels

#: Methods with a look of their own; only ever appended to, so that a figure of last year still reads the same.
#: Any other method's look follows from its name.
LOOKS = {
    "dense": Look("#000000", "circle", "solid"),
    "dense_bf16": Look("#7A7A7A", "square", "dashed"),
    "powersgd": Look("#0072B2", "triangle-up", "solid"),
    "topk": Look("#E69F00", "triangle-down", "solid"),
    "edgc": Look("#D55E00", "diamond", "solid"),
    "edgc_released": Look("#CC79A7", "cross", "solid"),
    "edgc_loss": Look("#56B4E9", "x", "solid"),
    "edgc_measured": Look("#009E73", "pentagon", "solid"),
    "powersgd_low": Look("#0072B2", "triangle-down", "dashed"),
    "edgc_no_gds": Look("#0072B2", "square", "dashed"),
    "edgc_no_dac": Look("#E69F00", "triangle-up", "dashed"),
    "edgc_no_warmup": Look("#009E73", "circle", "dashed"),
    "edgc_no_feedback": Look("#CC79A7", "triangle-down", "dashed"),
    "edgc_no_warm_start": Look("#56B4E9", "triangle-left", "dashed"),
    "powersgd_bf16": Look("#0072B2", "triangle-left", "dotted"),
    # shades of one colour: ranks of one method, or its variants on the wire
    "nocomm": Look("#B0B0B0", "hexagon", "dotted"),
    "dense_overlap": Look("#3C3C3C", "x", "dotted"),
    "dense_bf16_overlap": Look("#A0A0A0", "diamond", "dashdot"),
    "powersgd_r4": Look("#A6CEE3", "triangle-left", "solid"),
    "powersgd_r8": Look("#6BAED6", "triangle-down", "solid"),
    "powersgd_r16": Look("#2E7EBC", "triangle-up", "solid"),
    "powersgd_r32": Look("#08306B", "triangle-right", "solid"),
    "powersgd_r32_overlap": Look("#08306B", "square", "dotted"),
    "powersgd_r32_bf16": Look("#5E4FA2", "triangle-right", "dashed"),
    "powersgd_r32_bf16_overlap": Look("#5E4FA2", "square", "dotted"),
    "edgc_measured_bf16": Look("#004D38", "pentagon", "dashed"),
    "edgc_measured_bf16_overlap": Look("#004D38", "square", "dotted"),
    "topk_warm": Look("#B8860B", "triangle-down", "dashed"),
    "edgc_r128": Look("#D55E00", "square", "dashed"),
    "powersgd_r64": Look("#08519C", "diamond", "dashdot"),
    "optimus_cc": Look("#CC79A7", "x", "dashed"),
    "torch_powersgd": Look("#8C6BB1", "cross", "dashdot"),
    "edgc_bits": Look("#D55E00", "x", "dashdot"),
    "lgreco": Look("#117733", "triangle-up", "solid"),
    "lgreco_topk": Look("#117733", "triangle-down", "dashed"),
    "lgreco_bits": Look("#117733", "x", "dashdot"),
    "accordion": Look("#882255", "triangle-up", "solid"),
    "accordion_topk": Look("#882255", "triangle-down", "dashed"),
    "local_128": Look("#117733", "circle", "dotted"),
    "powersgd_8_8": Look("#4B2E83", "triangle-up", "dashed"),
    "powersgd_8_4": Look("#4B2E83", "triangle-down", "dotted"),
    "powersgd_4_4": Look("#4B2E83", "diamond", "dashdot"),
    "powersgd_batched": Look("#4B2E83", "pentagon", "dashdot"),
    "ramp": Look("#C00000", "triangle-up", "solid"),
    "ramp_local": Look("#C00000", "triangle-down", "dashed"),
    "acpsgd": Look("#1B7F79", "triangle-up", "dashed"),
    # black and grey as dense, whose averages they have
    "lossless": Look("#000000", "cross", "dotted"),
    "lossless_bf16": Look("#7A7A7A", "cross", "dotted"),
    "optimus_cc_stages": Look("#A04070", "x", "dotted"),
    "bitmap_values": Look("#B8860B", "square", "solid"),
    "dion": Look("#A6761D", "triangle-up", "solid"),
    "orth_dion": Look("#A6761D", "triangle-down", "dashed"),
    "demo": Look("#C51B7D", "diamond", "solid"),
    "onebit_adam": Look("#4D9221", "cross", "solid"),
    "cdadam": Look("#4D9221", "x", "dashed"),
    "powersgd_budget": Look("#0072B2", "x", "dashdot"),
    "diloco_paced": Look("#6A3D9A", "hexagon", "dashed"),
    "diloco": Look("#6A3D9A", "circle", "solid"),
    "streaming_diloco": Look("#6A3D9A", "square", "dashed"),
    "diloco_int4": Look("#6A3D9A", "triangle-down", "dotted"),
    "diloco_powersgd": Look("#6A3D9A", "triangle-up", "dashdot"),
    "localsgd": Look("#6A3D9A", "x", "dotted"),
    "muloco": Look("#CAB2D6", "diamond", "solid"),
    "muloco_topk": Look("#CAB2D6", "triangle-down", "dashed"),
    "sparseloco": Look("#CAB2D6", "cross", "dotted"),
    "delayed": Look("#B15928", "triangle-left", "solid"),
    "delayed_2": Look("#B15928", "triangle-right", "dashed"),
    "delayed_corrected": Look("#B15928", "diamond", "dotted"),
    "delayed_predicted": Look("#B15928", "x", "dashdot"),
    "delayed_powersgd": Look("#B15928", "triangle-up", "dashed"),
    "gossip": Look("#1F9E89", "hexagon", "solid"),
    "powergossip": Look("#1F9E89", "pentagon", "dashed"),
    "muon": Look("#5C4B00", "circle", "solid"),
    "outer_every_step": Look("#6A3D9A", "diamond", "dotted"),
    "diloco_5": Look("#6A3D9A", "pentagon", "dashdot"),
    "sparseloco_5": Look("#CAB2D6", "x", "dashdot"),
    "tagc": Look("#117A8B", "pentagon", "solid"),
    "tagc_released": Look("#66A8B0", "pentagon", "dashed"),
    "powersgd_r32_8_4": Look("#0072B2", "diamond", "dotted"),
    "powersgd_r32_8_4_overlap": Look("#0072B2", "diamond", "solid"),
    "edgc_sixth": Look("#F0A070", "triangle-left", "dashed"),
    "edgc_sixteenth": Look("#8C3D00", "triangle-right", "dotted"),
    "edgc_step_2": Look("#009E73", "square", "dashed"),
    "edgc_step_32": Look("#56B4E9", "hexagon", "dotted"),
}

#: Marker and dash of a method whose parameters are sharded, by the beginning of its name; the colour is the method's.
SHARDED = {"zero1_": ("cross", "dashdot"), "fsdp_": ("triangle-down", "dotted")}


def look(method: str) -> Look:
    """The same for a method in every figure of every experiment."""
    if method in LOOKS:
        return LOOKS[method]
    for layout, (marker, dash) in SHARDED.items():
        if method.startswith(layout):
            return Look(look(method.removeprefix(layout)).colour, marker, dash)
    digest = hashlib.sha256(method.encode()).digest()
    return Look(
        PALETTE[digest[0] % len(PALETTE)],
        [*MARKERS][digest[1] % len(MARKERS)],
        [*DASHES][1 + digest[2] % (len(DASHES) - 1)],  # never solid: that is for the methods above
    )


#: Colours of a step's regions (Paul Tol's muted palette): none is a method's.
REGIONS: dict[Region, str] = {
    "forward": "#BBBBBB",
    "backward": "#999999",
    "bubble": "#DCCBB8",
    "pipeline": "#661100",
    "entropy": "#AA4499",
    "observe": "#CC6677",
    "encode": "#88CCEE",
    "wire": "#332288",
    "decode": "#44AA99",
    "embedding": "#DDCC77",
    "optimizer": "#999933",
    "gather": "#117733",
    "other": "#EEEEEE",
}

CROWDED = 12  #: methods; a legend of more is not read
LEGEND = 6  #: entries of a legend that is read at a glance
GREY = Look("#BBBBBB", "circle", "solid")  #: of a method that is one of too many to have a name


def always_named(methods: Iterable[str]) -> set[str]:
    """Those of many methods that readers look for: the baseline, and what is replicated, in all its variants."""
    return {method for method in methods if method == "dense" or method.startswith("edgc")}
