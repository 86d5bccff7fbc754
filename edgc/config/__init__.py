"""The only definition of a setting. YAML files, the JSON schema, the CLI and the spec id all come from here.

`configs/experiments/X.yaml` names a model, methods, seeds …; `load_experiment` reads it with the files it names
and `Experiment.runs` is its matrix, one `RunSpec` a run. A RunSpec is complete: training needs nothing else.
"""

from __future__ import annotations

from edgc.config.calibration import Calibration, Stages
from edgc.config.cluster import Cluster, Links, Parallel, Schedule
from edgc.config.corpus import Corpus, Tokenizer
from edgc.config.experiment import Experiment, Judgement, load_experiment
from edgc.config.method import Method, Placement
from edgc.config.model import Model
from edgc.config.reading import CONFIGS, Named, available, load
from edgc.config.run import RunSpec
from edgc.config.seeds import UntilDecided
from edgc.config.simulation import Assumption, Simulation
from edgc.config.task import Task
from edgc.config.timing import Cell, Timing
from edgc.config.trace import Change, Trace
from edgc.config.training import Probe, Training

#: Everything that has files of its own, and so a JSON schema.
KINDS: tuple[type[Named], ...] = (Experiment, Model, Method, Cluster, Corpus, Task, Calibration, Trace)

__all__ = [
    "CONFIGS",
    "KINDS",
    "Assumption",
    "Calibration",
    "Cell",
    "Change",
    "Cluster",
    "Corpus",
    "Experiment",
    "Judgement",
    "Links",
    "Method",
    "Model",
    "Named",
    "Parallel",
    "Placement",
    "Probe",
    "RunSpec",
    "Schedule",
    "Simulation",
    "Stages",
    "Task",
    "Timing",
    "Tokenizer",
    "Trace",
    "Training",
    "UntilDecided",
    "available",
    "load",
    "load_experiment",
]
