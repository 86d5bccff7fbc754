"""Bytes, memory and arithmetic: of a layout, and of a method."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.core.comm.telemetry import HELD
from edgc.report import verdicts
from edgc.report.frames import MEMORY
from edgc.report.render import NOTHING, cell, groups, milliseconds, share
from edgc.report.study import Line, Study, baseline_of, by_line, counted, lines, pooled, steady
from edgc.report.table import IDENTITY, Column, Table
from edgc.report.tables import accuracy

#: By column: the frame's.
BYTES = {
    "gradient_payload": "payload_bytes",
    "gradient_wire": "wire_bytes",
    "parameters_payload": "parameters_payload_bytes",
    "parameters_wire": "parameters_bytes",
}


@by_line
def _by_layout(line: Line, study: Study) -> dict[str, object]:
    """One row per line: layout; `<tag>_<payload|wire>_mb` a step; `memory_<category>_mb` and memory_mb of a rank."""
    steps = counted(line, study)
    row: dict[str, object] = {"layout": line.layout.name}
    row |= {f"{name}_mb": steps[column].mean() / 1e6 for name, column in BYTES.items()}
    memory = line.runs[list(MEMORY)].astype(float).max() / 1e6
    row |= {f"memory_{what}_mb": memory[column] for what, column in zip(HELD, MEMORY, strict=True)}
    return row | {"memory_mb": memory.sum(min_count=1)}


def _who_holds_least(table: pd.DataFrame) -> str:
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


LAYOUT_COSTS = Table(
    "Bytes and memory by layout",
    "What a layout costs and saves: bytes of gradients and of parameters a step, and the memory of a rank.",
    _by_layout,
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
    _who_holds_least,
)


#: Columns that are those of table `accuracy`.
QUALITY = ("pairs", "gap", "gap_low", "gap_high", "verdict", "decided", "beaten_by")
STATE = MEMORY[MEMORY.index("memory_largest.method")]


def _by_method(study: Study) -> pd.DataFrame:
    """One row per line: `QUALITY` (nats, pairs of seeds); a step's wire_mb and wire_percent of the baseline's.

    Also encode_s, decode_s (seconds a step) and state_mb (10⁶ bytes of a rank).
    """
    every = [*lines(study.frames.runs)]
    if study.experiment.mode == "train":
        of_run = _own(study)
        found = [of_run[line.runs["run_id"].iloc[0]] for line in every]
    else:
        found = [verdicts.published_row(line.method, study, line.model) for line in every]
    sent = _baseline_sent(study)
    return pd.DataFrame([_row(line, study, quality, sent) for line, quality in zip(every, found, strict=True)])


def _own(study: Study) -> dict[str, pd.Series]:
    """Rows of table `accuracy` by run: it pools what here are lines of their own, as times are."""
    there = zip(lines(pooled(study).frames.runs), accuracy.build(study).iterrows(), strict=True)
    return {run: row for line, (_, row) in there for run in line.runs["run_id"]}


def _baseline_sent(study: Study) -> dict[str, float]:
    """What the baseline of each run sends in a step, by the run's id. Another model of CPU sends the same bytes."""
    alike = pooled(study)
    baselines = [(line, baseline_of(line, alike)) for line in lines(alike.frames.runs)]
    return {run: _sent(counted(own, alike)) for line, own in baselines if own for run in line.runs["run_id"]}


def _row(line: Line, study: Study, quality: pd.Series | None, baseline_sent: dict[str, float]) -> dict[str, object]:
    """`quality`: the method's row of table `accuracy`."""
    row: dict[str, object] = {**line.identity, "pairs": 0, "gap": np.nan, "verdict": None}
    row |= {} if quality is None else {name: quality.get(name) for name in QUALITY}
    steps, dense = counted(line, study), baseline_sent.get(line.runs["run_id"].iloc[0], np.nan)
    wire = _sent(steps)
    row |= {"wire_mb": wire / 1e6, "wire_percent": 100 * wire / dense if dense else np.nan}
    timed = steps if study.experiment.timing else steady(steps)
    row |= {"encode_s": timed["t_encode"].mean(), "decode_s": timed["t_decode"].mean()}
    return row | {"state_mb": line.runs[STATE].astype(float).max() / 1e6}


def _sent(steps: pd.DataFrame) -> float:
    return steps["wire_bytes"].mean() + steps["parameters_bytes"].mean()


def _who_sends_least(table: pd.DataFrame) -> str:
    """Of the methods that keep their loss, which sends least and what that takes; a sentence per model and hardware."""
    kept = table[table["verdict"].isin(["preserved", "better"]) & table["wire_mb"].notna()] if len(table) else table
    if kept.empty:
        return "No method is known to keep its loss."
    sentences = []
    for beginning, rows in groups(kept, among=table):
        least = rows.sort_values("wire_mb").iloc[0]
        of = f"{len(rows)} methods that keep their loss" if len(rows) > 1 else "the one method that keeps its loss"
        sentences.append(
            f"{beginning}Of {of}, {least['title']} sends least, {share(least['wire_percent'])} of the baseline's "
            f"bytes. It computes for {milliseconds(least['encode_s'] + least['decode_s'])} ms a step, and keeps "
            f"{cell(least['state_mb'])} MB a rank."
        )
    return "\n".join(sentences)


def _verdict(row: pd.Series) -> str:
    return NOTHING if pd.isna(row["verdict"]) else accuracy.verdict_in_words(row)


METHOD_COSTS = Table(
    "What a method costs",
    "What a method costs, in a row: loss, bytes, its own arithmetic, and what it keeps in memory.",
    _by_method,
    {
        **IDENTITY,
        Column("Pairs", "pairs"): "seeds that both the method and the baseline finished",
        Column("Loss gap", accuracy.gap_in_words, unit="nats"): "to the baseline, in nats a token, with the interval "
        "that table `accuracy` gives it. A timing has the one that an experiment of `judgement.gaps_from` published, "
        "and with overlap that of the method without",
        Column("Verdict", _verdict): "that table's",
        Column("Wire", "wire_mb", cell, "MB/step"): "bytes of gradients that are sent, and of parameters under ZeRO-1 "
        "and FSDP2: sum over ranks, mean over steps (of a timing: those that count); MB = 10⁶ bytes",
        Column("Of the baseline's", "wire_percent", share): "its share of what the baseline sends",
        Column("encode", "encode_s", milliseconds, "ms"): "",
        Column("decode", "decode_s", milliseconds, "ms"): "",
        "Encode, decode": "a column each: what the method computes itself on the first pipeline stage, mean over "
        "steps, without each run's first ones, so that what comes once in many steps counts",
        Column("State", "state_mb", cell, "MB"): "what the exchange keeps from step to step: error feedback above all, "
        "and warm factors; of the rank that holds most",
    },
    _who_sends_least,
)
