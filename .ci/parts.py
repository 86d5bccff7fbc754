"""The parts of `make test-all` that a change asks for beside `make test`: those that test a path that it touches.

`python .ci/parts.py` prints their targets, and on stderr the path that decided. What changed is what differs from
CI_BASE or, if that is not set, from the commit a day before HEAD. Where git cannot tell, every part is asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

EVERYWHERE = (
    "pyproject.toml", "requirements/", "Makefile", ".ci/", "tests/conftest.py", "tests/fixtures/", "edgc/tools/laws/",
)  # fmt: skip
HOOKS = ("edgc/torch_ddp.py", "edgc/fsdp.py", "edgc/local_steps.py", "edgc/hooks/")
EXCHANGE = ("edgc/core/", *HOOKS, "configs/methods/")
RUNS = ("edgc/suite/config/", "edgc/suite/backends/", "edgc/suite/training/")
LAB = ("edgc/suite/cluster/slurm.py", "edgc/tools/lab/", "slurm/", "workflow/", "Snakefile", "tests/lab/")
#: Targets of the Makefile, and what each tests.
PARTS = {
    "test-rest": (
        *EXCHANGE, *RUNS, "edgc/report/", "edgc/suite/cluster/", "workflow/", "Snakefile", "configs/", "docs/",
        "CONTRIBUTING.md", "edgc/cli/", "edgc/tools/check_package.py", "tests/unit/", "tests/property/", "tests/ops/",
        "tests/distributed/", "tests/workflow/",
    ),
    "test-dry": (
        *EXCHANGE, *RUNS, "edgc/tools/dry/", "edgc/tools/gpu_queue.py", "edgc/report/archive.py",
        "edgc/report/publish.py", "edgc/suite/cluster/", "workflow/", "Snakefile", "tests/dry/",
    ),
    "kernels": (
        "edgc/core/aggregators/", "edgc/core/ops/", "edgc/tools/dry/compilation.py", "edgc/tools/dry/traffic.py",
        "tests/ops/", "tests/compiled/",
    ),
    "test-browser": ("edgc/report/site/", "edgc/report/pictures.py", "edgc/report/vega.py", "tests/browser/"),
    "test-lab": (*RUNS, *LAB),
}  # fmt: skip
DAY = 24 * 60 * 60


def changed() -> list[str] | None:
    """Paths that differ from the base; None if git cannot tell."""
    try:
        newest = int(_git("log", "-1", "--format=%ct", "HEAD"))
        base = os.environ.get("CI_BASE") or _git("rev-list", "-1", f"--before={newest - DAY}", "HEAD")
        return _git("diff", "--name-only", "--no-renames", base, "HEAD").splitlines() if base else None
    except (OSError, subprocess.CalledProcessError):
        return None


def asked_for(paths: Iterable[str]) -> dict[str, str]:
    """Targets, each with the first path that asks for it."""
    found: dict[str, str] = {}
    for path in paths:
        for part, tested in PARTS.items():
            if path.startswith((*EVERYWHERE, *tested)):
                found.setdefault(part, path)
    return found


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    paths = changed()
    why = dict.fromkeys(PARTS, "git tells no base") if paths is None else asked_for(paths)
    for part, path in why.items():
        print(f"make {part}: {path}", file=sys.stderr)
    print(*why)
