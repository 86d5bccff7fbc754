"""What is published of runs in one file is what their own files say."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from edgc.core.base.files import canonical_json, write_json
from edgc.report import manifests

RECORDS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | st.sampled_from((0.0, 1.0)) | st.just([]),
    lambda values: st.dictionaries(st.sampled_from("abc"), values),
)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(manifests.RECORDS, RECORDS)), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)  # files are flushed to disk
def test_every_field_comes_back(tmp_path_factory, runs: list[dict]) -> None:
    folder = tmp_path_factory.mktemp("runs")
    for number, records in enumerate(runs):
        for name, record in records.items():
            write_json(folder / str(number) / f"{name}.json", record)
    manifests.write(folder / manifests.NAME, sorted(folder.iterdir()))
    assert canonical_json(manifests.read(folder / manifests.NAME)) == canonical_json(
        {str(number): records for number, records in enumerate(runs)}
    )


def test_what_all_runs_share_is_told_once_and_each_run_has_a_line(tmp_path: Path) -> None:
    for number in range(20):
        for name in manifests.RECORDS:
            write_json(tmp_path / f"run{number}" / f"{name}.json", {"packages": {"torch": "2.13"}, "seed": number})
    manifests.write(tmp_path / manifests.NAME, tmp_path.iterdir())
    text = (tmp_path / manifests.NAME).read_text()
    assert text.count("torch") == len(manifests.RECORDS)
    assert sum(json.loads("{" + line.removesuffix(",") + "}") != {} for line in text.splitlines()[2:-1]) == 20
