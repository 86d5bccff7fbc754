"""The complete scripts of edgc/hooks/README.md, as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.fixtures.limits import HANG

ROOT = Path(__file__).parents[2]


def bytes_of_script(number: int, ranks: int, folder: Path) -> tuple[int, int]:
    """Run the README's script in `folder`, and once more: the second start goes on from the first one's checkpoint.

    Both have to end alike. Returns bytes a step, and those that it says it replaces.
    """
    text = (ROOT / "edgc" / "hooks" / "README.md").read_text(encoding="utf-8")
    scripts = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(scripts) == 3
    (folder / "train.py").write_text(scripts[number], encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "train.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    lines = []
    for _ in range(2):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        lines.append(done.stdout.strip().splitlines()[-1])
    assert lines[0] == lines[1]
    printed = re.fullmatch(r"step 15: loss [\d.]+, (\d+) bytes a step in place of (\d+)", lines[0])
    assert printed, lines[0]
    return int(printed[1]), int(printed[2])
