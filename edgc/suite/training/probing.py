"""What the probes of all stages saw, in the run's folder: probe.jsonl, a line a step and stage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgc.core.base import files
from edgc.core.exchange.probe import GradientProbe, timed
from edgc.suite.config import RunSpec
from edgc.suite.training.recorder import gathered, rewind

if TYPE_CHECKING:
    from edgc.suite.backends.megatron.process import Place

FILE = "probe.jsonl"


class ProbeRecords:
    """Has a probe on the first data- and tensor-parallel rank of each stage, if the run wants one."""

    def __init__(self, spec: RunSpec, run_dir: Path, place: Place) -> None:
        self._settings = settings = spec.training.probe
        self._path, self._rank, self._device = run_dir / FILE, place.rank, place.device
        self._wanted = settings.looks
        self.probe: GradientProbe | None = None  #: for the exchange
        if self._wanted and place.data == 0 and place.tensor == 0:
            self.probe = GradientProbe(
                place.stage,
                entropy_every=settings.entropy_every,
                rates=settings.rates,
                estimators=settings.estimators,
                spectra_every=settings.spectra_every,
            )

    def begin(self, step: int) -> None:
        """Drop records of steps after `step`, 0 for none: a resumed run makes them again. A run that begins times the
        sampler."""
        if self._rank or not self._wanted:
            return
        if step:
            rewind(self._path, step)
        else:
            p = self._settings
            files.write_jsonl(self._path, timed(p.timed_shapes, p.rates, p.estimators, self._device))

    def flush(self) -> None:
        """Gather what was seen since the last call and append it. Collective; between timed steps."""
        if not self._wanted:
            return
        everybody = gathered(self.probe.take() if self.probe else [])
        if self._rank == 0:
            records = [record for rank in everybody for record in rank]
            files.append_jsonl(self._path, sorted(records, key=lambda r: (r["step"], r["stage"])))
