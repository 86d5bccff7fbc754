"""What a layout costs and saves: bytes of gradients and of parameters a step, and the memory of a rank."""

from __future__ import annotations

import pandas as pd

from edgc.core.comm.telemetry import HELD
from edgc.report.frames import MEMORY
from edgc.report.render import cell
from edgc.report.study import Line, Study, by_line, counted
from edgc.report.table import IDENTITY, Column, Table

#: By column: the frame's.
BYTES = {
    "gradient_payload": "payload_bytes",
    "gradient_wire": "wire_bytes",
    "parameters_payload": "parameters_payload_bytes",
    "parameters_wire": "parameters_bytes",
}


@by_line
def build(line: Line, study: Study) -> dict[str, object]:
    """One row per line: layout; `<tag>_<payload|wire>_mb` a step; `memory_<category>_mb` and memory_mb of a rank."""
    steps = counted(line, study)
    row: dict[str, object] = {"layout": line.layout.name}
    row |= {f"{name}_mb": steps[column].mean() / 1e6 for name, column in BYTES.items()}
    memory = line.runs[list(MEMORY["largest"])].astype(float).max() / 1e6
    row |= {f"memory_{what}_mb": memory[column] for what, column in zip(HELD, MEMORY["largest"], strict=True)}
    return row | {"memory_mb": memory.sum(min_count=1)}


def paragraph(table: pd.DataFrame) -> str:
    """Who holds least and most, and what of the bytes are parameters, by layout."""
    known = table.dropna(subset=["memory_mb"]) if len(table) else table
    if known.empty:
        return "No run says what memory its ranks hold."
    sentences = []
    for model, rows in known.groupby("model", sort=False):
        ordered = rows.sort_values("memory_mb", kind="stable")
        least, most = ordered.iloc[0], ordered.iloc[-1]
        sentences.append(
            f"{model}: a rank holds least with {least['title']}, {cell(least['memory_mb'])} MB, and most with "
            f"{most['title']}, {cell(most['memory_mb'])} MB."
        )
        for name, own in rows[rows["parameters_wire_mb"] > 0].groupby("layout", sort=False):
            shares = 100 * own["parameters_wire_mb"] / (own["parameters_wire_mb"] + own["gradient_wire_mb"])
            few, many = f"{shares.min():.0f}", f"{shares.max():.0f}"
            share = few if few == many else f"{few} to {many}"
            sentences.append(f"{model}: under {name} parameters are {share} % of the bytes sent.")
    return "\n".join(sentences)


def _bytes(name: str, tag: str) -> Column:
    return Column(name, f"{tag}_mb", cell, "MB/step")


TABLE = Table(
    "Bytes and memory by layout",
    build,
    {
        **IDENTITY,
        Column("Layout", "layout"): "DDP (plain loop) and megatron: a rank holds everything; ZeRO-1 (megatron's loop): "
        "a rank keeps the optimizer's state of its share only; FSDP2 (plain loop): parameters and gradients, too",
        "All bytes": "sum over ranks, mean over steps (of a timing: those that count); MB = 10⁶ bytes. Links of "
        "any rate have the same",
        _bytes("Gradients: payload", "gradient_payload"): "bytes that the method hands to collectives",
        _bytes("Gradients: wire", "gradient_wire"): "what ring algorithms send for them",
        _bytes("Parameters: payload", "parameters_payload"): "the same of parameters that their owners send to the "
        "others",
        _bytes("Parameters: wire", "parameters_wire"): "what is sent for them",
        "All memory": "what a rank's tensors take after the last step, padding included; of the rank that holds most. "
        "Activations and temporary buffers are gone by then and not in it",
        **{Column(f"Memory: {what}", f"memory_{what}_mb", cell, "MB"): "" for what in HELD},
        "Memory: …": "of parameters; gradients; the optimizer's state; the method: error feedback above all, and warm "
        "factors; other: buffers of the model",
        Column("Memory: all", "memory_mb", cell, "MB"): "their sum",
    },
    paragraph,
)
