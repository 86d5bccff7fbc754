"""Runs that were packed come back as they were, whatever experiment asks for them."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.report.archive import KEPT, MARK, archive, archived, restore
from edgc.suite.config import RunSpec, load_experiment
from tests.fixtures.synthetic_runs import write_run

SMOKE = load_experiment("smoke")
DENSE, *OTHERS = SMOKE.runs()


def trained(results: Path) -> Path:
    """The finished folder of the first run, and another's that has not come to its end."""
    for spec in (DENSE, OTHERS[0]):
        folder = results / "smoke" / "runs" / spec.run_id
        write_run(spec, folder, "done")
        (folder / "zero_shot.json").write_text('{"tasks": {}}')
    (results / "smoke" / "runs" / DENSE.run_id / "trained").touch()
    (results / "smoke" / "runs" / DENSE.run_id / "checkpoint").mkdir()
    return results / "smoke" / "runs" / DENSE.run_id


def test_what_comes_back_is_what_was_packed(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    before = trained(here)
    packed = archive(SMOKE, here)
    assert packed == {DENSE.run_id: here / "archive" / "smoke.tar.zst"}, "one has not ended"
    written = packed[DENSE.run_id].read_bytes()
    archive(SMOKE, here)
    assert packed[DENSE.run_id].read_bytes() == written, "git sees no change"

    shutil.copytree(here / "archive", there / "archive")
    found = restore(SMOKE, there)
    assert found.came == [DENSE.run_id]
    assert len(found.absent) == len(SMOKE.runs()) - 1
    after = there / "smoke" / "runs" / DENSE.run_id
    kept = {name for name in KEPT if (before / name).exists()}
    assert {path.name for path in after.iterdir()} == kept | {MARK}
    assert all((after / name).read_bytes() == (before / name).read_bytes() for name in kept - {"steps.jsonl"})
    steps = [pd.DataFrame(files.read_jsonl(folder / "steps.jsonl")) for folder in (before, after)]
    noisy = {column: 3 for column in map(str, steps[0]) if column.startswith("t_")} | {"grad_norm": 4, "loss": 5}
    assert len(noisy) > 3
    for column, digits in noisy.items():
        np.testing.assert_allclose(steps[1][column], steps[0][column], rtol=0.51 * 10.0 ** (1 - digits))
    exact = [rows.drop(columns=[*noisy]) for rows in steps]
    pd.testing.assert_frame_equal(exact[0], exact[1], check_exact=True)


def test_seconds_on_links_that_change_are_kept_to_the_microsecond(tmp_path: Path) -> None:
    experiment = load_experiment("links-trace-every")
    spec = experiment.runs()[0]
    folder = tmp_path / experiment.name / "runs" / spec.run_id
    write_run(spec, folder, "done")
    (folder / "zero_shot.json").write_text('{"tasks": {}}')
    (folder / "trained").touch()
    before = files.read_jsonl(folder / "steps.jsonl")
    archive(experiment, tmp_path)
    shutil.rmtree(folder)
    restore(experiment, tmp_path)
    after = files.read_jsonl(folder / "steps.jsonl")
    assert [row["t_step"] for row in after] == [round(row["t_step"], 6) for row in before]
    assert [row["loss"] for row in after] == [row["loss"] for row in before]
    assert any(row["t_step"] != float(f"{row['t_step']:.3g}") for row in before), "three digits would show"


def test_a_run_that_has_begun_is_left_alone(tmp_path: Path) -> None:
    before = trained(tmp_path)
    archive(SMOKE, tmp_path)
    (before / "status.json").write_text("{}")
    found = restore(SMOKE, tmp_path)
    assert DENSE.run_id in found.there
    assert not found.came
    assert (before / "status.json").read_text() == "{}"


def test_what_runs_nothing_is_refused(tmp_path: Path) -> None:
    for act in (archive, restore):
        with pytest.raises(UserError, match=r"paper-h100-simulated: mode simulate runs nothing"):
            act(load_experiment("paper-h100-simulated"), tmp_path)


def test_a_timing_is_packed_once_it_has_ended_and_comes_back_whole(tmp_path: Path) -> None:
    timing = load_experiment("links-pipeline")
    here, there = tmp_path / "here", tmp_path / "there"
    *most, last = timing.runs()
    for spec in (*most, last):
        write_run(spec, here / timing.name / "runs" / spec.run_id, "done")
    folders = [here / timing.name / "runs" / spec.run_id for spec in most]
    for folder in folders:
        (folder / "timed").touch()
    assert archive(timing, here) == {}, "a method is still to come"
    (here / timing.name / "runs" / last.run_id / "timed").touch()
    packed = archive(timing, here)
    assert [*packed] == [spec.run_id for spec in timing.runs()]
    assert len(set(packed.values())) == 1, "one file"

    shutil.copytree(here / "archive", there / "archive")
    first = there / timing.name / "runs" / last.run_id
    first.mkdir(parents=True)
    with pytest.raises(UserError, match=rf"1 of {len(packed)} runs of this timing are there"):
        restore(timing, there)  # another session's run would stand beside these
    first.rmdir()
    assert restore(timing, there).came == [*packed]
    assert restore(timing, there).there == [*packed]
    assert {path.name for path in first.parent.iterdir()} == {*packed}, "nothing else is left"
    for folder in folders:
        after = there / timing.name / "runs" / folder.name
        assert (after / "timed").is_file()
        assert (after / "status.json").read_bytes() == (folder / "status.json").read_bytes()
    other = timing.model_copy(update={"timing": timing.timing.model_copy(update={"rounds": 9})})
    shutil.rmtree(there / timing.name)
    assert restore(other, there) == ([], [], [*packed]), "it was timed otherwise"


def test_a_run_joins_those_that_are_packed_and_none_is_in_two_files(tmp_path: Path) -> None:
    first = trained(tmp_path)
    archive(SMOKE, tmp_path)
    before = contents(tmp_path / "archive" / "smoke.tar.zst")
    shutil.rmtree(first)
    second = tmp_path / "smoke" / "runs" / OTHERS[0].run_id
    (second / "trained").touch()
    packed = archive(SMOKE, tmp_path)
    assert packed == dict.fromkeys((DENSE.run_id, OTHERS[0].run_id), tmp_path / "archive" / "smoke.tar.zst")
    after = contents(tmp_path / "archive" / "smoke.tar.zst")
    assert before.items() < after.items()
    assert {Path(name).parent.name for name in after.keys() - before.keys()} == {OTHERS[0].run_id}

    other = SMOKE.model_copy(update={"name": "other"})
    trained(tmp_path)
    (tmp_path / "smoke").rename(tmp_path / "other")
    assert archive(other, tmp_path) == packed
    assert [path.name for path in (tmp_path / "archive").iterdir()] == ["smoke.tar.zst"]
    shutil.rmtree(tmp_path / "other")
    assert restore(other, tmp_path).came == [DENSE.run_id, OTHERS[0].run_id], "whoever asks for them"


def test_a_run_is_not_left_where_it_lacks_scores(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    archive(SMOKE.model_copy(update={"name": "other"}), tmp_path)  # nothing of it is there
    packed = archive(SMOKE, tmp_path)
    (tmp_path / "smoke").rename(tmp_path / "other")
    (tmp_path / "other" / folder.relative_to(tmp_path / "smoke") / "zero_shot.json").write_text(
        '{"tasks": {"piqa": {"value": 0.5}}}'
    )
    with pytest.raises(UserError, match=rf"smoke.tar.zst: has run {DENSE.run_id} without piqa"):
        archive(SMOKE.model_copy(update={"name": "other"}), tmp_path)
    assert set(packed.values()) == {tmp_path / "archive" / "smoke.tar.zst"}


def test_a_run_that_was_trained_anew_replaces_what_was_packed(tmp_path: Path) -> None:
    first = trained(tmp_path)
    (packed,) = set(archive(SMOKE, tmp_path).values())
    before = contents(packed)
    (first / "status.json").write_text("{}")
    (first / "stages.json").unlink(missing_ok=True)
    archive(SMOKE, tmp_path)
    after = contents(packed)
    assert after[f"{DENSE.run_id}/status.json"] == b"{}"
    assert before.keys() - after.keys() <= {f"{DENSE.run_id}/stages.json"}


def contents(path: Path) -> dict[str, bytes]:
    """What any other program reads in an archive: files by name."""
    with tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read())) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


@pytest.mark.tier("test")
def test_whatever_is_archived_is_found_by_its_id_and_once() -> None:
    """Runs that no experiment asks for any more are kept, too."""
    found = []
    for path in Path("results/archive").iterdir():
        for name, content in contents(path).items():
            if name.endswith("/spec.json"):
                assert Path(name).parent.name == validate(RunSpec, json.loads(content), name).run_id
                found.append(str(Path(name).parent))
    assert len(found) == len(set(found))
    assert set(found) == archived(Path("results")).keys()


@pytest.mark.parametrize("left", [0.5, 0.0])
def test_a_damaged_archive_is_named(left: float, tmp_path: Path) -> None:
    trained(tmp_path)
    (packed,) = set(archive(SMOKE, tmp_path).values())
    whole = packed.read_bytes()
    packed.write_bytes(whole[: int(left * len(whole))] or b"version https://git-lfs.github.com/spec/v1")
    for work in (archive, restore):
        with pytest.raises(UserError, match=r"smoke\.tar\.zst: damaged"):
            work(SMOKE, tmp_path if work is archive else _beside(packed))


def _beside(packed: Path) -> Path:
    """Results without runs, with this archive."""
    there = packed.parents[1] / "there"
    shutil.copytree(packed.parent, there / "archive")
    return there
