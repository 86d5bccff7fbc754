"""What made each published number: commit, packages, machine, runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from edgc.report.render import NOTHING
from edgc.report.site.contents import Kept

SHORT = 10  #: digits of a commit that tell it apart
PACKAGES = ("torch", "megatron-core", "triton", "numpy")  #: whose versions matter most


def made(kept: Iterable[Kept]) -> pd.DataFrame:
    """A row an experiment."""
    return pd.DataFrame([_row(each) for each in kept])


def _row(kept: Kept) -> dict[str, Any]:
    manifests = kept.manifests
    commits = _each(str(each.get("git_commit") or "in no commit")[:SHORT] for each in manifests)
    changed = any(each.get("git_dirty") for each in manifests)
    seeds = {each["seed"] for each in manifests if each.get("seed") is not None}
    return {
        "Experiment": kept.name,
        "Kind": {"train": "training", "time": "timing", "simulate": "forecast", "study": "study"}[kept.mode],
        "Hardware": _each(_device(each) for each in manifests),
        "Runs": len(manifests),
        "Seeds": len(seeds) or NOTHING,
        "Commit": commits + (" and changes in no commit" if changed else ""),
        "Packages": _each(_packages(each) for each in manifests),
        "Python": _each(str(each.get("python", NOTHING)) for each in manifests),
    }


def _each(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(words)) or NOTHING


def _device(manifest: Mapping[str, Any]) -> str:
    device = manifest.get("device")
    return f"{device['count']} × {device['model']}" if device else "none: computed by a model"


def _packages(manifest: Mapping[str, Any]) -> str:
    versions = manifest.get("packages", {})
    return ", ".join(f"{name} {versions[name]}" for name in PACKAGES if versions.get(name))
