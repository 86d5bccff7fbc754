"""A probe's records (see `edgc.suite.training.probe`) as rows of the frames `entropies` and `spectra`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from edgc.core.base import files

Record = Mapping[str, Any]


#: Stands for a parameter's name in rows of matrices that were only timed; their step counts repetitions.
TIMED = "timed shapes"


def entropy_rows(record: Record) -> Iterator[dict[str, Any]]:
    """One row per matrix, estimator and rate, and one for the stage: the mean over its matrices, and the cost."""
    if "timed" in record:
        yield from _timed_rows(record)
    for estimator, by_rate in record.get("entropy", {}).items():
        for rate, nats in by_rate.items():
            common = {"step": record["step"], "stage": record["stage"], "estimator": estimator, "rate": float(rate)}
            for name, value in zip(record["parameters"], nats, strict=True):
                yield {**common, "parameter": name, "entropy": value}
            known = [value for value in nats if value is not None]
            mean = math.fsum(known) / len(known) if known else None
            cost = {"elements": record["elements"][rate], "seconds": record["seconds"][estimator][rate]}
            yield {**common, "parameter": None, "entropy": mean, **cost}


def _timed_rows(record: Record) -> Iterator[dict[str, Any]]:
    for estimator, by_rate in record["seconds"].items():
        for rate, seconds in by_rate.items():
            row = {"step": record["timed"], "stage": record["stage"], "parameter": TIMED, "estimator": estimator}
            yield row | {"rate": float(rate), "elements": record["elements"][rate], "seconds": seconds}


def spectrum_rows(record: Record) -> Iterator[dict[str, Any]]:
    """One row per matrix; what is a list or a mapping is JSON."""
    spectra = record.get("spectra")
    if not spectra:
        return
    for i, (name, (rows, columns)) in enumerate(zip(record["parameters"], record["shapes"], strict=True)):
        row = {"step": record["step"], "stage": record["stage"], "parameter": name, "rows": rows, "columns": columns}
        yield row | {kind: _cell(values[i]) for kind, values in spectra.items()}


def _cell(value: Any) -> Any:
    return files.canonical_json(value) if isinstance(value, list | dict) else value
