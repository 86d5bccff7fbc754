"""README says what is so: its numbers are the published ones, its links and commands exist."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from edgc.cli import app
from edgc.config import Experiment, Method, available

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("|")]


def test_tables_are_the_published_ones() -> None:
    blocks = re.findall(r"<!-- (results/published/\S+\.md) -->\n(.*?)<!-- end -->", README, re.DOTALL)
    assert blocks
    for path, quoted in blocks:
        assert rows(quoted) == rows((ROOT / path).read_text(encoding="utf-8")), path


def test_links_lead_somewhere() -> None:
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", README) if not t.startswith("http")]
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target


def test_commands_methods_and_experiments_exist() -> None:
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"`edgc ([a-z]+)", README)) <= commands
    assert set(re.findall(r"experiment=([a-z0-9-]+)", README)) - {"yours"} <= set(available(Experiment))
    listed = re.search(r"\| method \|.*?\n\n", README, re.DOTALL)
    assert listed
    for name in set(re.findall(r"^\| (`.*?`) \|", listed[0], re.MULTILINE)):
        assert set(re.findall(r"`(\w+)`", name)) <= set(available(Method))
