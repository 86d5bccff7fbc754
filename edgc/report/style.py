"""How figures look: one colour, marker and dash a method everywhere; fonts, sizes, and files that do not vary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from edgc.core.comm.telemetry import Region


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    marker: str
    dash: str | tuple


#: Okabe and Ito's palette, which colour-blind readers can tell apart, less its yellow (too faint on white).
PALETTE = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
DASHES: tuple[str | tuple, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))

#: Methods with a look of their own; only ever appended to, so that a figure of last year still reads the same.
#: Any other method's look follows from its name.
LOOKS = {
    "dense": Look("#000000", "o", "-"),
    "dense_bf16": Look("#7A7A7A", "s", (0, (4, 1.5))),
    "powersgd": Look("#0072B2", "^", "-"),
    "topk": Look("#E69F00", "v", "-"),
    "edgc": Look("#D55E00", "D", "-"),
    "edgc_released": Look("#CC79A7", "P", "-"),
    "edgc_loss": Look("#56B4E9", "X", "-"),
    "edgc_measured": Look("#009E73", "p", "-"),
    "powersgd_low": Look("#0072B2", "v", (0, (4, 1.5))),
    "edgc_no_gds": Look("#0072B2", "s", (0, (4, 1.5))),
    "edgc_no_dac": Look("#E69F00", "^", (0, (4, 1.5))),
    "edgc_no_warmup": Look("#009E73", "o", (0, (4, 1.5))),
    "edgc_no_feedback": Look("#CC79A7", "v", (0, (4, 1.5))),
    "edgc_no_warm_start": Look("#56B4E9", "<", (0, (4, 1.5))),
    "powersgd_bf16": Look("#0072B2", "<", (0, (1, 1.2))),
    # shades of one colour: ranks of one method, or its variants on the wire
    "nocomm": Look("#B0B0B0", "h", (0, (1, 1.2))),
    "dense_overlap": Look("#3C3C3C", "X", (0, (1, 1.2))),
    "dense_bf16_overlap": Look("#A0A0A0", "D", (0, (5, 1, 1, 1))),
    "powersgd_r4": Look("#A6CEE3", "<", "-"),
    "powersgd_r8": Look("#6BAED6", "v", "-"),
    "powersgd_r16": Look("#2E7EBC", "^", "-"),
    "powersgd_r32": Look("#08306B", ">", "-"),
    "powersgd_r32_overlap": Look("#08306B", "s", (0, (1, 1.2))),
    "powersgd_r32_bf16": Look("#5E4FA2", ">", (0, (4, 1.5))),
    "powersgd_r32_bf16_overlap": Look("#5E4FA2", "s", (0, (1, 1.2))),
    "edgc_measured_bf16": Look("#004D38", "p", (0, (4, 1.5))),
    "edgc_measured_bf16_overlap": Look("#004D38", "s", (0, (1, 1.2))),
    "topk_warm": Look("#B8860B", "v", (0, (4, 1.5))),
    "edgc_r128": Look("#D55E00", "s", (0, (4, 1.5))),
    "powersgd_r64": Look("#08519C", "D", (0, (5, 1, 1, 1))),
    "optimus_cc": Look("#CC79A7", "X", (0, (4, 1.5))),
    "torch_powersgd": Look("#8C6BB1", "P", (0, (5, 1, 1, 1))),
    "edgc_bits": Look("#D55E00", "X", (0, (5, 1, 1, 1))),
    "lgreco": Look("#117733", "^", "-"),
    "lgreco_topk": Look("#117733", "v", (0, (4, 1.5))),
    "lgreco_bits": Look("#117733", "X", (0, (5, 1, 1, 1))),
    "accordion": Look("#882255", "^", "-"),
    "accordion_topk": Look("#882255", "v", (0, (4, 1.5))),
    "local_16": Look("#999933", "o", (0, (4, 1.5))),
    "local_128": Look("#117733", "o", (0, (1, 1.2))),
    "powersgd_8_8": Look("#4B2E83", "^", (0, (4, 1.5))),
    "powersgd_8_4": Look("#4B2E83", "v", (0, (1, 1.2))),
    "powersgd_4_4": Look("#4B2E83", "D", (0, (5, 1, 1, 1))),
    "powersgd_batched": Look("#4B2E83", "p", (0, (5, 1, 1, 1))),
    "acpsgd": Look("#1B7F79", "^", (0, (4, 1.5))),
    # black and grey as dense, whose averages they have
    "lossless": Look("#000000", "P", (0, (1, 1.2))),
    "lossless_bf16": Look("#7A7A7A", "P", (0, (1, 1.2))),
    "optimus_cc_stages": Look("#A04070", "X", (0, (1, 1.2))),
    "bitmap_values": Look("#B8860B", "s", "-"),
    "dion": Look("#A6761D", "^", "-"),
    "orth_dion": Look("#A6761D", "v", (0, (4, 1.5))),
    "demo": Look("#C51B7D", "D", "-"),
    "onebit_adam": Look("#4D9221", "P", "-"),
    "cdadam": Look("#4D9221", "X", (0, (4, 1.5))),
    "powersgd_budget": Look("#0072B2", "X", (0, (5, 1, 1, 1))),
    "diloco_paced": Look("#6A3D9A", "h", (0, (4, 1.5))),
    "diloco": Look("#6A3D9A", "o", "-"),
    "streaming_diloco": Look("#6A3D9A", "s", (0, (4, 1.5))),
    "diloco_int4": Look("#6A3D9A", "v", (0, (1, 1.2))),
    "diloco_powersgd": Look("#6A3D9A", "^", (0, (5, 1, 1, 1))),
    "localsgd": Look("#6A3D9A", "X", (0, (1, 1.2))),
    "muloco": Look("#CAB2D6", "D", "-"),
    "muloco_topk": Look("#CAB2D6", "v", (0, (4, 1.5))),
    "sparseloco": Look("#CAB2D6", "P", (0, (1, 1.2))),
    "delayed": Look("#B15928", "<", "-"),
    "delayed_2": Look("#B15928", ">", (0, (4, 1.5))),
    "delayed_corrected": Look("#B15928", "D", (0, (1, 1.2))),
    "delayed_predicted": Look("#B15928", "X", (0, (5, 1, 1, 1))),
    "delayed_powersgd": Look("#B15928", "^", (0, (4, 1.5))),
    "gossip": Look("#1F9E89", "h", "-"),
    "powergossip": Look("#1F9E89", "p", (0, (4, 1.5))),
    "dense_bf16_both": Look("#3C3C3C", "s", (0, (5, 1, 1, 1))),
    "muon": Look("#5C4B00", "o", "-"),
    "outer_every_step": Look("#6A3D9A", "D", (0, (1, 1.2))),
    "diloco_5": Look("#6A3D9A", "p", (0, (5, 1, 1, 1))),
    "sparseloco_5": Look("#CAB2D6", "X", (0, (5, 1, 1, 1))),
    "tagc": Look("#117A8B", "p", "-"),
    "tagc_released": Look("#66A8B0", "p", (0, (4, 1.5))),
    "powersgd_r32_8_4": Look("#0072B2", "D", (0, (1, 1.2))),
    "powersgd_r32_8_4_overlap": Look("#0072B2", "D", "-"),
}

#: Marker and dash of a method whose parameters are sharded, by the beginning of its name; the colour is the method's.
SHARDED = {"zero1_": ("P", (0, (5, 1, 1, 1))), "fsdp_": ("v", (0, (1, 1.2)))}


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
        MARKERS[digest[1] % len(MARKERS)],
        DASHES[1 + digest[2] % (len(DASHES) - 1)],  # never solid: that is for the methods above
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

#: Matplotlib settings of every figure. The salt and the missing date make equal data give equal files.
RC: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "svg.hashsalt": "edgc",
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # of one width: a picture is laid out for the first
}
PANEL_WIDTH, PANEL_HEIGHT, DPI = 5.6, 3.2, 200  # inches, inches, pixels an inch
NARROW_PANEL_WIDTH = 3.7  # inches, of three panels and more
CROWDED = 12  #: methods; a legend of more is not read
LEGEND = 6  #: entries of a legend that is read at a glance
GREY = Look("#BBBBBB", "o", "-")  #: of a method that is one of too many to have a name


def always_named(methods: Iterable[str]) -> set[str]:
    """Those of many methods that readers look for: the baseline, and what is replicated, in all its variants."""
    return {method for method in methods if method == "dense" or method.startswith("edgc")}


def height(rows: int) -> float:
    """Inches of a panel with a named row for each method: as any other, unless these need more."""
    return max(PANEL_HEIGHT, 0.8 + 0.19 * rows)
