"""A checkout stays light: what git tracks, and no picture that nobody is shown."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.fixtures.pages import PAGES, ROOT, folder

MOST_MIB = 40


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_a_checkout_has_forty_mebibytes_at_most(tracked: list[str]) -> None:
    assert sum((ROOT / name).stat().st_size for name in tracked) <= MOST_MIB * 2**20


def test_pixels_are_only_of_pictures_that_a_page_shows(tracked: list[str]) -> None:
    """Pages show the SVG; that an image is there is among the tests of links."""
    shown = {
        (folder(page) / target).resolve()
        for page in PAGES
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", PAGES[page])
    }
    assert not [name for name in tracked if name.endswith(".png") and (ROOT / name).resolve() not in shown]


def test_letters_of_published_pictures_are_text(tracked: list[str]) -> None:
    """Letters as paths are most of a drawing, and nobody can search them."""
    drawn = [
        (ROOT / name).read_text(encoding="utf-8")
        for name in tracked
        if name.startswith("results/") and name.endswith(".svg")
    ]
    assert all("<text" in svg and "DejaVuSans-" not in svg for svg in drawn)
