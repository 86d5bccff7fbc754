"""What is published and archived is what the experiments' files ask for today."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from edgc.core.base import files
from edgc.core.settings.reading import available
from edgc.report import manifests
from edgc.report.archive import NEEDED, archived, restore
from edgc.suite.config import Experiment, load_experiment

ROOT = Path(__file__).parents[3]
PUBLISHED = {path.parent.name: path for path in (ROOT / "results/published").glob(f"*/{manifests.NAME}")}


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_runs_are_those_that_the_file_asks_for(name: str) -> None:
    """All of its first seeds, and of those that are added until verdicts are decided some."""
    experiment, runs = load_experiment(name), manifests.read(PUBLISHED[name])
    assert {spec.run_id for spec in experiment.runs()} <= set(runs)
    assert set(runs) <= {spec.run_id for spec in experiment.runs_at_most()}


@pytest.mark.tier("all")
def test_every_archive_comes_back_with_records_that_can_be_read(tmp_path: Path) -> None:
    """Of runs that an experiment of today asks for; the others are kept all the same."""
    (tmp_path / "archive").symlink_to(ROOT / "results/archive")
    known, came = archived(tmp_path), set()
    for name in available(Experiment):
        experiment = load_experiment(name)
        if experiment.mode not in NEEDED:
            continue
        restored = restore(experiment, tmp_path).came
        assert set(restored) == known.keys() & {spec.run_id for spec in experiment.runs_at_most()} or experiment.timing
        for run in restored:
            folder = tmp_path / name / "runs" / run
            assert [file for file in NEEDED[experiment.mode] if not (folder / file).is_file()] == []
            assert len(files.read_jsonl(folder / "steps.jsonl")) == files.read_json(folder / "status.json")["step"]
        came |= set(restored)
    assert came


CONDITIONS = sorted((ROOT / "results/published").glob("*/tables/links_conditions.csv"))


@pytest.mark.parametrize("path", CONDITIONS, ids=lambda path: path.parents[1].name)
def test_published_tables_of_a_timing_know_the_same_floors(path: Path) -> None:
    here, links = (pd.read_csv(each) for each in (path, path.with_name("links.csv")))
    pd.testing.assert_series_equal(here["exposed_s_min"].isna(), links["exposed_s"].isna(), check_names=False)
