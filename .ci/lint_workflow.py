"""`snakemake --lint`, less one lint: the software is one pinned environment (requirements/), not one a rule."""

from __future__ import annotations

import subprocess
import sys

ACCEPTED = "Specify a conda environment or container for each rule.:"


def main() -> int:
    """Print all of Snakemake's lints if there is another one than `ACCEPTED`, or if it fails. Returns the exit code."""
    command = [sys.executable, "-m", "snakemake", "--lint", *sys.argv[1:]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    titles = [line.strip().removeprefix("* ") for line in done.stdout.splitlines() if line.startswith("    * ")]
    if done.returncode and set(titles) != {ACCEPTED}:
        print(done.stdout)
        return 1
    print("snakemake --lint: no complaint")
    return 0


if __name__ == "__main__":
    sys.exit(main())
