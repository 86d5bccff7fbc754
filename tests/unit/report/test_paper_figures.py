"""What the ledger names is made again from what git keeps, and is what was published."""

from pathlib import Path

import pytest

from edgc.report.paper_figures import make
from edgc.report.reference_values import load_reference
from tests.fixtures.pages import ROOT

#: Of runs that are archived, of what was published without them, and of what is no experiment.
SHOWN = ("gpu1-h200/tables/accuracy.md", "observations/tables/observations.md", "observations/figures/spectra.svg")
SHOWN += ("gpu-dry/paper-h100/README.md",)


@pytest.mark.tier("all")
def test_tables_are_the_published_ones_and_figures_are_drawn(tmp_path: Path) -> None:
    reference = load_reference()
    entry = reference.ledger[0].model_copy(update={"shown": SHOWN})
    for folder in ("published", "archive"):
        (tmp_path / folder).symlink_to(ROOT / "results" / folder)
    out = tmp_path / "paper-figures"
    assert make(reference.model_copy(update={"ledger": (entry,)}), tmp_path, out) == ["gpu1-h200"]
    assert (out / "gpu1-h200/tables/accuracy.csv").is_file(), "written again, not copied"
    for path in SHOWN:
        assert f"({path})" in (out / "index.md").read_text()
        if path.endswith(".md"):
            again, before = ((folder / path).read_text().splitlines() for folder in (out, ROOT / "results/published"))
            assert [line for line in again if "|" in line] == [line for line in before if "|" in line], path
    assert (out / "observations/figures/spectra.svg").read_text().startswith("<svg")
    assert "![observations/figures/spectra.svg](observations/figures/spectra.svg)" in (out / "index.md").read_text()
