"""The worked example of CONTRIBUTING.md works as it is printed: added to a copy of the package, it conforms."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SUITE = "tests/property/test_conformance.py"


def block(text: str, language: str) -> str:
    """The only code block of a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return found


def test_the_example_is_one_file_one_yaml_and_one_registry_line(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for folder in ("edgc", "configs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / SUITE).parent.mkdir(parents=True)
    for file in ("pyproject.toml", SUITE):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "edgc" / "aggregators" / "rolling.py").write_text(block(text, "python"), encoding="utf-8")
    (tmp_path / "configs" / "methods" / "rolling.yaml").write_text(block(text, "yaml"), encoding="utf-8")
    (line,) = re.findall(r'`("rolling": \w+,)`', text)
    registry = tmp_path / "edgc" / "aggregators" / "__init__.py"
    opening = "AGGREGATORS = {\n"
    assert opening in registry.read_text(encoding="utf-8")
    registry.write_text(
        "from edgc.aggregators.rolling import Rolling\n"
        + registry.read_text(encoding="utf-8").replace(opening, f"{opening}    {line}\n"),
        encoding="utf-8",
    )

    suite = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "rolling", SUITE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert suite.returncode == 0, suite.stdout + suite.stderr
    passed = re.search(r"(\d+) passed", suite.stdout)
    assert passed, suite.stdout
    assert int(passed[1]) >= 10
