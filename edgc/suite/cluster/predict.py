"""What the cluster model says of a timing session before that is run, so that it can be held against what is measured.

It is calibrated on other sessions on the same machine (`predict_from`), and says nothing of policies that decide by
what they see, nor of links without a limit, whose rate is the machine's own affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.provenance import code_base
from edgc.suite.cluster.calibrate import Timed, calibrate, read_session
from edgc.suite.cluster.plan import at_rate
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.trajectory import Parametric
from edgc.suite.cluster.whole_run import simulate
from edgc.suite.config import CONFIGS, Calibration, Experiment, load_experiment
from edgc.suite.config.rate import bits_per_second
from edgc.suite.config.timing import UNSHAPED


def write_prediction(experiment: Experiment, results: Path, configs: Path = CONFIGS) -> Path:
    """Calibrate, predict, and write `<results>/<experiment>/prediction.json`. Returns its path.

    Raises `UserError` if the experiment names no sessions to be calibrated on, one of them was not run to its end, or
    the experiment was measured already: a prediction comes before.
    """
    folder = results / experiment.name
    if not experiment.predict_from:
        raise UserError(f"experiment {experiment.name}: predict_from is empty: name timings to calibrate the model on")
    if begun := next(folder.glob("runs/*/steps.jsonl"), None):
        raise UserError(f"{begun}: measured already, and a prediction comes before; remove {folder}, or move it away")
    timed = [one for name in experiment.predict_from for one in read_session(load_experiment(name, configs), results)]
    origin = f"measured on this machine by {', '.join(experiment.predict_from)}"
    found = calibrate(experiment.name, timed, origin)
    path = folder / "prediction.json"
    record = {"written": datetime.now(UTC).isoformat(timespec="seconds")} | code_base()
    record |= {"calibration": found.model_dump(mode="json"), "rows": list(_rows(experiment, found, timed, configs))}
    files.write_json(path, record)
    return path


def _rows(
    experiment: Experiment, rates: Calibration, timed: Sequence[Timed], configs: Path
) -> Iterator[dict[str, Any]]:
    """A row a method and limited rate. `known`: whether the calibration rests on that very point."""
    assert experiment.timing is not None
    seen = {(one.computed, one.spec.method.name, rate) for one in timed for rate in one.stages}
    for spec in experiment.runs(configs):
        method = spec.method
        if method.control or method.adapts:
            continue
        for rate in experiment.timing.rates:
            if rate == UNSHAPED:
                continue
            gbit = bits_per_second(rate) / 1e9
            model = StepModel(at_rate(spec, gbit), rates)
            step = simulate(model, Parametric()).compressed.step
            yield {
                "model": spec.model.name,
                "method": method.name,
                "title": method.title,
                "calibration": rates.name,
                "source": rates.source,
                "sweep": "measured",
                "rate": rate,
                "known": ((spec.model.name, spec.parallel), method.name, rate) in seen,
                "link_gbit": gbit,
                "iteration_s": step.seconds,
                "floor_s": model.floor,
            }
