"""What is published: all an experiment shows, from committed code alone, and less where somebody says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_json, write_text
from edgc.report import manifests
from edgc.report.publish import KEPT, publish
from edgc.report.selection import figures_of, tables_of
from edgc.suite.config import load_experiment

SMOKE = load_experiment("smoke")


def made(results: Path, **manifest: object) -> Path:
    """The results of `smoke`, as files of some text, beside tables and kinds of file that are of another time."""
    folder = results / "smoke"
    for spec in SMOKE.runs():
        for name in ("spec.json", "status.json"):
            write_json(folder / "runs" / spec.run_id / name, {})
        record = {"git_commit": "abc", "git_dirty": False} | manifest
        write_json(folder / "runs" / spec.run_id / "manifest.json", record)
    for room, names, kinds in (
        ("tables", tables_of(SMOKE), ("csv", "md")),
        ("figures", figures_of(SMOKE), ("svg", "csv")),
    ):
        (folder / room).mkdir()
        for name in (*names, "of_another_time"):
            for kind in (*kinds, "html"):
                (folder / room / f"{name}.{kind}").write_text(name)
    return results


def test_everything_shown_and_where_it_is_from_is_copied(tmp_path: Path) -> None:
    folder = publish(SMOKE, made(tmp_path))
    assert folder == tmp_path / "published" / "smoke"
    for room, names in (("tables", tables_of(SMOKE)), ("figures", figures_of(SMOKE))):
        files = {f"{name}.{kind}" for name in names for kind in KEPT[room]}
        assert {path.name for path in (folder / room).iterdir()} == files
    assert manifests.read(folder / manifests.NAME).keys() == {spec.run_id for spec in SMOKE.runs()}


def test_what_is_left_out_is_not_there_and_what_was_there_is_replaced(tmp_path: Path) -> None:
    publish(SMOKE, made(tmp_path))
    folder = publish(SMOKE, tmp_path, leave_out=["time", "latency"])
    assert {path.stem for path in (folder / "tables").iterdir()} == set(tables_of(SMOKE)) - {"time", "latency"}
    assert {path.stem for path in (folder / "figures").iterdir()} == set(figures_of(SMOKE)) - {"latency"}
    with pytest.raises(UserError, match=r"--leave-out speed: smoke has .*latency"):
        publish(SMOKE, tmp_path, leave_out=["speed"])


def test_a_figure_that_shows_nothing_is_not_published(tmp_path: Path) -> None:
    results = made(tmp_path)
    (results / "smoke" / "figures" / "latency.csv").write_text("method,latency\n")
    (results / "smoke" / "tables" / "latency.csv").write_text("method,latency\n")
    folder = publish(SMOKE, results)
    assert {path.stem for path in (folder / "figures").iterdir()} == set(figures_of(SMOKE)) - {"latency"}
    assert {path.stem for path in (folder / "tables").iterdir()} == set(tables_of(SMOKE)), "a table has its headings"


def test_code_that_is_in_no_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"git_dirty True.*nobody can make it again"):
        publish(SMOKE, made(tmp_path, git_dirty=True))
    assert not (tmp_path / "published").exists()


def test_a_run_or_a_table_that_is_missing_is_named(tmp_path: Path) -> None:
    results = made(tmp_path)
    (results / "smoke" / "tables" / "time.md").unlink()
    with pytest.raises(UserError, match=r"tables/time\.md; run the experiment to its end"):
        publish(SMOKE, results)


def test_a_simulation_is_published_with_the_code_that_made_it(tmp_path: Path) -> None:
    simulated = load_experiment("paper-v100-simulated")
    source = tmp_path / simulated.name
    for room, names, kinds in (
        ("tables", tables_of(simulated), ("csv", "md")),
        ("figures", figures_of(simulated), ("svg", "csv")),
    ):
        for path in (source / room / f"{name}.{kind}" for name in names for kind in kinds):
            write_text(path, "numbers")
    with pytest.raises(UserError, match=r"no manifest\.json; run the experiment to its end"):
        publish(simulated, tmp_path)
    write_json(source / "manifest.json", {"git_commit": "abc", "git_dirty": "0123"})
    with pytest.raises(UserError, match="made from code that is in no commit"):
        publish(simulated, tmp_path)
    write_json(source / "manifest.json", {"git_commit": "abc", "git_dirty": None})
    assert (publish(simulated, tmp_path) / "manifest.json").is_file()
