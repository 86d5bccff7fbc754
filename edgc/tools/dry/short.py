"""A run of a few steps that does all that a long one does: warm-up, compression, a window's end, evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgc.core.base import files
from edgc.core.base.settings import validate
from edgc.suite.config import RunSpec

STEPS = 8
TOKENS = 50257  # GPT-2's vocabulary
WINDOW = 2
#: Of policies that have such a setting.
SHORT = {"window": WINDOW, "warmup_fraction": 0.0, "warmup_limit": 0.5, "step_limit": 1000, "part": 1}


def short(spec: RunSpec, steps: int = STEPS) -> RunSpec:
    """The run with `steps` steps: shapes, ranks and placement as they are; windows and periods shorter.

    A policy with windows is warm after the second of them; its ranks may then move as far as they like.
    """
    plain = spec.model_dump()
    plain["training"] |= {
        "iterations": steps, "decay_iterations": None, "eval_interval": steps, "eval_batches": 1,
        "checkpoint_interval": steps // 2,
    }  # fmt: skip
    plain["cluster"] |= {"links": None, "bind_to_cores": False}
    policy, synchronisation = plain["method"]["policy"], plain["method"]["synchronisation"]
    policy |= {name: value for name, value in SHORT.items() if name in policy}
    if {"alpha", "warmup_fraction"} <= policy.keys():
        policy["alpha"] = 1 / WINDOW
    if "start_step" in policy:
        policy["start_step"] = min(policy["start_step"], WINDOW)
    if "every" in synchronisation:
        synchronisation["every"] = WINDOW
        policy |= {"window": 1} if "window" in policy else {}  # it counts exchanges
        if synchronisation.get("delay"):
            synchronisation |= {"every": 2 * WINDOW, "fragments": 2, "delay": 1}
        if "highest" in synchronisation:
            synchronisation |= {"lowest": 1, "highest": 2 * WINDOW}
    return validate(RunSpec, plain, f"dry run of {spec.run_id}")


def corpus(spec: RunSpec, folder: Path) -> Path:
    """A prepared corpus of zeros for the run."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = spec.training.global_batch * spec.model.seq_length + 1
    for split in ("train", "validation"):
        np.zeros(tokens, "<u2").tofile(folder / f"{split}.bin")
    splits = {split: {"tokens": tokens} for split in ("train", "validation")}
    manifest = {"vocab_size": TOKENS, "splits": splits, "sha256": "", "settings": {"name": "zeros"}}
    files.write_json(folder / "manifest.json", manifest)
    return folder
