"""The tidy frames that every table and figure is made of, and the parquet files they travel in."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

import pandas as pd

from edgc.core.base.errors import UserError
from edgc.core.base.files import atomic_open
from edgc.core.comm.telemetry import HELD, REGIONS

#: Columns that say which run a row of any frame belongs to.
IDENTITY = ("run_id", "model", "method", "title", "seed", "device")

#: seconds of a step by region; they add up to t_step
STEP_SECONDS = tuple(f"t_{region}" for region in REGIONS)
#: traffic that is not the method's gradients
OTHER_BYTES = ("agree_bytes", "observe_bytes", "embedding_bytes", "pipeline_bytes", "parameters_bytes")
#: of mode time only: the cell that a step belongs to, whether it counts (see `edgc.suite.config.timing`), the share of
#: the machine's cores that others used during the cell, and how much longer than at their best they took right before
#: it
SESSION = ("rate", "round", "counted", "foreign_load", "slower")
#: only where links follow a trace: Mbit/s of the slowest one; only where a run itself says when replicas meet, in the
#: row of the step in which they do: steps since the last time, seconds of a step without its exchange, and of that
LINKS = ("link_mbit", "local_steps", "local_step_s", "exchange_s")
STEP_BYTES = ("payload_bytes", "wire_bytes", "dense_bytes", *OTHER_BYTES, "parameters_payload_bytes")
#: bytes that the rank that holds most keeps from step to step
MEMORY = tuple(f"memory_largest.{what}" for what in HELD)

#: Definitions of communication latency in a forecast.
LATENCIES = ("wire", "exchange", "exposed", "everything")

#: Columns each frame has even when no run wrote a record.
COLUMNS = {
    "runs": (
        *IDENTITY, "role", "in_every_step", "spec_id", "status", "message", "step", "iterations", "validation_loss",
        "training_seconds", "startup_seconds", "evaluation_seconds", "checkpoint_seconds", "num_parameters",
        *MEMORY,
    ),
    "steps": (
        *IDENTITY, "step", "tokens", "loss", "grad_norm", "lr", *STEP_BYTES, "t_step", *STEP_SECONDS, "t_exposed",
        "t_in_flight", "t_first_stage_end", "t_last_stage_end", "peak_mem", "interface_bytes", *SESSION, *LINKS,
        "averaged",
    ),
    "evals": (*IDENTITY, "step", "tokens", "seconds", "wire_bytes", "loss"),
    "decisions": (
        *IDENTITY, "step", "window", "stage", "parameter", "entropy", "rank", "ratio", "bits", "relative_error",
        "clamp",
    ),
    "zero_shot": (*IDENTITY, "task", "status", "metric", "value", "stderr", "n", "chance", "right", "reason"),
    "entropies": (*IDENTITY, "step", "stage", "parameter", "estimator", "rate", "entropy", "elements", "seconds"),
    "spectra": (
        *IDENTITY, "step", "stage", "parameter", "rows", "columns", "mean", "deviation", "skewness", "kurtosis",
        "singular_values", "histogram", "previous", "alike",
    ),
    "forecasts": (
        "model", "assumption", "precision", "calibration", "source", "sweep", "rate", "known", "latency_ms",
        "link_gbit", "method", "title", "amounts", "baseline", "verdict", "sentence", "iteration_s", "floor_s",
        "saving_percent", "low_percent", "high_percent", "saving_fp32_percent", "bound_percent", "break_even_gbit",
        "tokens_per_s", "utilisation_percent", "needs_gbit_50", "needs_gbit_80", "needs_gbit_95", "days", "gpu_hours",
        *(f"latency_{kind}_{unit}" for kind in LATENCIES for unit in ("s", "percent")),
    ),
}  # fmt: skip

TEXT = {
    "run_id", "model", "method", "title", "device", "role", "spec_id", "status", "message", "parameter", "clamp",
    "task", "metric", "reason", "right", "estimator", "singular_values", "histogram", "alike", "assumption",
    "precision", "calibration", "source", "sweep", "amounts", "baseline", "verdict", "sentence",
}  # fmt: skip
RATE_AS_TEXT = ("steps", "forecasts")  # as `tc` spells it; a probe's rate is a number


@dataclass(frozen=True)
class Frames:
    """One row per run, step, evaluation, decision and zero-shot task. All rows carry `IDENTITY`.

    Seconds and bytes of a step are means over `averaged` steps, which have the same (see `collect.amortised`).

    runs: what the run is (spec.*), where it ran (manifest.*), how it ended (status and its numbers). Statuses:
    done, diverged, failed, timeout; unfinished (started, no status written), not run.

    Two frames are empty unless runs had a probe (see `edgc.suite.training.probe`).
    entropies: one row per step, stage, estimator, rate and matrix (nats). A row without a parameter is the stage's: the
    mean over its matrices, the elements that were read, and the seconds that took. Parameter `collect.TIMED` is of
    matrices that were only timed.
    spectra: one row per step and matrix; lists as JSON, `alike` cosines by the other's name.

    forecasts is empty but in mode simulate and for timings that were predicted (sweep: measured). One row per model,
    set of assumptions, method and point of a sweep (see `edgc.suite.cluster.experiments`); not measured.
    """

    runs: pd.DataFrame
    steps: pd.DataFrame
    evals: pd.DataFrame
    decisions: pd.DataFrame
    zero_shot: pd.DataFrame
    entropies: pd.DataFrame = field(default_factory=lambda: frame("entropies", []))
    spectra: pd.DataFrame = field(default_factory=lambda: frame("spectra", []))
    forecasts: pd.DataFrame = field(default_factory=lambda: frame("forecasts", []))

    def write(self, folder: Path) -> None:
        """Write `<folder>/<frame>.parquet`."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in FRAMES:
            with atomic_open(folder / f"{name}.parquet", "wb") as stream:
                getattr(self, name).to_parquet(stream, index=False)

    @classmethod
    def read(cls, folder: Path) -> Frames:
        """Read what `write` wrote. Raises `UserError` if a file is missing."""
        missing = [name for name in FRAMES if not (folder / f"{name}.parquet").is_file()]
        if missing:
            raise UserError(f"{folder}: no {', '.join(missing)}.parquet; run `edgc collect` for this experiment")
        return cls(**{name: pd.read_parquet(folder / f"{name}.parquet") for name in FRAMES})


FRAMES = tuple(own.name for own in fields(Frames))


#: What columns hold where a record has none: what they count was not to be had then; a step is its own mean.
ABSENT = {"t_gather": 0.0, "parameters_bytes": 0.0, "parameters_payload_bytes": 0.0, "averaged": 1.0}


def frame(kind: str, records: list[dict]) -> pd.DataFrame:
    """Records as the frame `kind`: its columns first, then any others; numbers are float64 or int64, text is str."""
    table = pd.DataFrame(records)
    others = [column for column in table.columns if column not in COLUMNS[kind]]
    table = table.reindex(columns=[*COLUMNS[kind], *others])
    text = TEXT | {"rate"} if kind in RATE_AS_TEXT else TEXT
    for column in table.columns:
        if column in text:
            table[column] = table[column].astype("string")
        elif column in COLUMNS[kind]:
            table[column] = pd.to_numeric(table[column])
            if column in ABSENT:
                table[column] = table[column].fillna(ABSENT[column])
        elif table[column].dtype == object:
            table[column] = table[column].map(lambda v: v if v is None or pd.isna(v) else str(v)).astype("string")
    return table
