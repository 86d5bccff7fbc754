"""The only definition of a setting. YAML files, the JSON schema, the CLI and the spec id all come from here.

A file in `configs/experiments/` names a model, methods, seeds …; `load_experiment` reads it with the files it names
and `Experiment.runs` is its matrix, one `RunSpec` a run. A RunSpec is complete: training needs nothing else.
"""

from __future__ import annotations

from edgc.core.settings.method import Method
from edgc.core.settings.reading import CONFIGS, Named, available, load, paths
from edgc.suite.config.calibration import Calibration, Stages
from edgc.suite.config.cluster import Cluster, Parallel
from edgc.suite.config.corpus import Corpus, Tokenizer
from edgc.suite.config.experiment import Experiment, load_experiment
from edgc.suite.config.judgement import Judgement, UntilDecided
from edgc.suite.config.model import Model
from edgc.suite.config.run import RunSpec
from edgc.suite.config.task import Task
from edgc.suite.config.timing import Cell, Timing
from edgc.suite.config.trace import Trace
from edgc.suite.config.training import Probe, Training
from edgc.suite.config.variant import Variants, shared_variants

#: Everything that has files of its own, and so a JSON schema.
KINDS: tuple[type[Named], ...] = (Experiment, Variants, Model, Method, Cluster, Corpus, Task, Calibration, Trace)
