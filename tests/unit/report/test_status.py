"""`edgc status` tells from run folders alone what became of every run, and reads only what it needs."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from edgc.cli import app
from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.report.status import view as progress_view
from edgc.report.status.progress import RunProgress, Watched, choose, ended, read, read_run
from edgc.report.status.view import duration, fitting, print_tables, summary, view
from edgc.suite.config import load_experiment
from tests.fixtures.limits import HANG
from tests.fixtures.studies import tiny_spec
from tests.fixtures.synthetic_runs import write_run

NOW = 1_700_000_000.0
SPEC = tiny_spec("powersgd")  # 40 iterations
SMOKE = load_experiment("smoke").runs()
#: of the runs that `everything` writes
STATES = ["running", "done", "failed", "timeout", *["waiting"] * (len(SMOKE) - 4)]
IO = Path("/proc/self/io")


def record(step: int, loss: float | None = 5.0, t_step: float = 1.0) -> dict[str, Any]:
    return {"step": step, "loss": loss, "t_step": t_step, "t_wire": 0.1}


def write(folder: Path, age: float = 0.0, now: float = NOW, **contents: Any) -> Path:
    """Files of these contents, changed `age` seconds before `now`. `job`, `status`: JSON; `steps`: records; `stop`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"job": "job.json", "status": "status.json", "steps": "steps.jsonl", "stop": "stop"}
    for what, content in contents.items():
        path = folder / names[what]
        if what == "stop":
            path.write_text(content)
        else:
            (files.write_jsonl if what == "steps" else files.write_json)(path, content)
        os.utime(path, (now - age, now - age))
    return folder


def job(slurm: str | None = None, restarts: int = 0) -> dict[str, Any]:
    return {"slurm_job_id": slurm, "started": NOW - 5000, "restarts": restarts}


def status(how: str, step: int = 40, message: str = "", validation_loss: float | None = 4.5) -> dict[str, Any]:
    record = {"status": how, "step": step, "iterations": 40, "message": message}
    return record | {"validation_loss": validation_loss, "training_seconds": 1.0}


def look(folder: Path, now: float = NOW) -> RunProgress:
    return read_run("tiny", SPEC, folder, now)


def test_nothing_there_yet_is_waiting(tmp_path: Path) -> None:
    for folder in (tmp_path / "absent", tmp_path):
        found = look(folder)
        assert (found.state, found.step, found.iterations, found.seconds_silent) == ("waiting", 0, 40, None)


def test_what_was_refused_before_it_began_has_failed(tmp_path: Path) -> None:
    (tmp_path / "launch.log").write_text("corpus: no such folder\n")
    assert (found := look(tmp_path)).state == "failed"
    assert found.message == "corpus: no such folder"
    write(tmp_path, job=job())  # it began since
    assert look(tmp_path).state == "running"


def test_a_running_run_is_at_its_last_whole_record(tmp_path: Path) -> None:
    write(tmp_path, 10, job=job("4711", restarts=2), steps=[record(step, 6.0 - step / 10) for step in range(1, 11)])
    with (tmp_path / "steps.jsonl").open("a") as stream:
        stream.write(json.dumps(record(11, 1.0))[:-5])
    os.utime(tmp_path / "steps.jsonl", (NOW - 10, NOW - 10))
    found = look(tmp_path)
    assert (found.state, found.step, found.loss) == ("running", 10, 5.0)
    assert found.seconds_left == 30.0  # 30 steps of a second
    assert (found.slurm_job_id, found.restarts, found.seconds_silent) == ("4711", 2, 10.0)


def test_a_slow_first_step_and_a_loss_that_is_not_finite_do_no_harm(tmp_path: Path) -> None:
    slow = record(1, t_step=500.0)
    found = look(write(tmp_path, steps=[slow, *(record(step) for step in (2, 3)), record(4, loss=None)]))
    assert (found.seconds_left, found.loss) == (36.0, None)


@pytest.mark.parametrize(("job_age", "steps_age", "state"), [
    (20, 9000, "running"), (9000, 20, "running"), (119, 119, "running"), (121, 121, "stopped"), (-300, 50, "running"),
])  # fmt: skip
def test_either_sign_of_life_will_do(tmp_path: Path, job_age: float, steps_age: float, state: str) -> None:
    write(tmp_path, job_age, job=job())
    write(tmp_path, steps_age, steps=[record(3)])
    found = look(tmp_path)
    assert (found.state, found.step) == (state, 3)
    assert (found.seconds_left is not None) == (state == "running")
    assert found.seconds_silent == max(0, min(job_age, steps_age))


def test_a_run_that_starts_and_one_that_never_came_to_a_step(tmp_path: Path) -> None:
    assert look(write(tmp_path, 5, job=job())).state == "running"
    assert look(tmp_path, NOW + 1000).state == "stopped"


def test_records_without_a_job_file_are_an_older_run(tmp_path: Path) -> None:
    found = look(write(tmp_path, 5000, steps=[record(7)]))
    assert (found.state, found.step, found.slurm_job_id) == ("stopped", 7, None)


@pytest.mark.parametrize("how", ["done", "diverged", "failed", "timeout", "cancelled"])
def test_a_status_says_how_it_ended_however_fresh_the_records(tmp_path: Path, how: str) -> None:
    found = look(write(tmp_path, job=job(), steps=[record(29)], stop="timeout", status=status(how, 30, "why")))
    assert (found.state, found.step, found.loss, found.validation_loss) == (how, 30, 5.0, 4.5)
    assert (found.message, found.seconds_left, found.stop) == ("why", None, "")


def test_a_timing_that_failed_before_any_method_ended_has_its_sessions_status(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "one"
    write(tmp_path / "session", job=job(), status=status("failed", 0, "why"))
    write(run, steps=[record(3)])
    assert (look(run).state, look(run).message) == ("failed", "why")
    assert look(write(run, status=status("done"))).state == "done", "its own comes first"


def test_a_request_to_stop_leaves_the_run_running(tmp_path: Path) -> None:
    found = look(write(tmp_path, 10, job=job(), steps=[record(3)], stop="timeout\n"))
    assert (found.state, found.stop) == ("running", "timeout")


def test_files_that_are_no_json_are_as_if_absent(tmp_path: Path) -> None:
    for name in ("status.json", "job.json"):
        (tmp_path / name).write_text("")
    (tmp_path / "steps.jsonl").write_bytes(b"\0\xff\n[1]\nnull\n")
    found = look(tmp_path, time.time())
    assert (found.state, found.step, found.slurm_job_id) == ("running", 0, None)


def test_only_tails_are_read(tmp_path: Path) -> None:
    """200 runs of 10 000 records each; all but the last records are a hole of the size that they would have."""
    if not IO.exists():
        pytest.skip("only Linux counts the bytes that a process reads")

    def bytes_read() -> int:
        return int(IO.read_text().split()[1])

    specs = tuple(SPEC.model_copy(update={"seed": seed}) for seed in range(200))
    lines = b"".join(json.dumps(record(step)).ljust(800).encode() + b"\n" for step in range(9_980, 10_001))
    for spec in specs:
        folder = write(tmp_path / "tiny" / "runs" / spec.run_id, job=job())
        with (folder / "steps.jsonl").open("wb") as stream:
            stream.seek(10_000 * 801 - len(lines))
            stream.write(lines)
    before = bytes_read()
    runs = read(Watched("tiny", specs), tmp_path, NOW).runs
    assert bytes_read() - before < 200 * 50_000
    assert {(run.step, run.loss) for run in runs} == {(10_000, 5.0)}


def test_the_pace_is_that_of_late(tmp_path: Path) -> None:
    records = [record(step, t_step=100.0) for step in range(1, 10_000)] + [record(20) for _ in range(1_000)]
    assert look(write(tmp_path, steps=records)).seconds_left == 20.0


def test_folders_are_matched_with_experiments(tmp_path: Path) -> None:
    for folder in ("smoke/runs", "renamed/runs", "published/runs", "paper-h100/tables", "corpora/x"):
        (tmp_path / folder).mkdir(parents=True)
    gone, smoke = choose([], tmp_path)
    assert (gone.name, gone.specs, smoke.name, smoke.problem) == ("renamed", (), "smoke", "")
    assert "renamed.yaml" in gone.problem
    assert [spec.run_id for spec in smoke.specs] == [spec.run_id for spec in SMOKE]
    assert [one.name for one in choose(["smoke", "paper-h100", "smoke"], tmp_path)] == ["smoke", "paper-h100"]
    with pytest.raises(UserError, match=r"'renamed'.*there are: .*smoke"):
        choose(["renamed"], tmp_path)
    with pytest.raises(UserError, match=r"--results .*/absent: no such folder"):
        choose([], tmp_path / "absent")


def test_a_broken_experiment_does_not_hide_the_others(tmp_path: Path) -> None:
    configs = tmp_path / "configs" / "experiments"
    configs.mkdir(parents=True)
    (configs / "broken.yaml").write_text("{name: broken, titel: x}")
    for name in ("broken", "gone"):
        (tmp_path / "results" / name / "runs").mkdir(parents=True)
    broken, gone = choose([], tmp_path / "results", tmp_path / "configs")
    assert "titel" in broken.problem
    assert gone.problem


def test_away_from_a_checkout_the_packages_experiments_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "smoke" / "runs").mkdir(parents=True)
    [smoke] = choose([], Path("results"))
    assert (len(smoke.specs), smoke.problem) == (5, "")


def test_a_run_of_another_matrix_is_ignored(tmp_path: Path) -> None:
    write_run(SPEC, tmp_path / "tiny" / "runs" / SPEC.run_id)
    write_run(tiny_spec("topk"), tmp_path / "tiny" / "runs" / "no-longer-there")
    found = read(Watched("tiny", (SPEC,)), tmp_path, NOW)
    assert [(run.run_id, run.state) for run in found.runs] == [(SPEC.run_id, "done")]


@pytest.mark.parametrize(("states", "over"), [
    (["done", "diverged", "cancelled", "failed"], True), (["done", "timeout"], False), (["stopped"], False),
    (["waiting"], False), (["running"], False), ([], True),
])  # fmt: skip
def test_when_there_is_nothing_more_to_wait_for(tmp_path: Path, states: list[str], over: bool) -> None:
    found = read(Watched("tiny", (SPEC,) * len(states)), tmp_path, NOW)
    runs = [dataclasses.replace(run, state=state) for run, state in zip(found.runs, states, strict=True)]
    assert ended([dataclasses.replace(found, runs=tuple(runs))]) is over


# What is printed


def everything(results: Path, now: float) -> None:
    """A folder of each kind for the runs of `smoke`: running, done, failed, timeout and waiting."""
    running, done, failed, timeout, *_ = (results / "smoke" / "runs" / spec.run_id for spec in SMOKE)
    write(running, 5, now, job=job("123456789"), steps=[record(120, 3.25, 60.0)], stop="cancelled")
    write(done, 900, now, job=job("123456790"), steps=[record(200, 1.0)], status=status("done", 200))
    write(failed, 90, now, job=job(), steps=[record(20)], status=status("failed", 20, "rank 1: [no] memory\nmore"))
    (failed / "launch.log").touch()
    write(timeout, 90, now, job=job(), steps=[record(150)], status=status("timeout", 150))


def printed(results: Path, width: int, terminal: bool) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, highlight=False)
    print_tables([read(one, results, NOW) for one in choose([], results)], console, results)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fit_the_terminal_and_nothing_is_cut_off(tmp_path: Path, width: int) -> None:
    everything(tmp_path, NOW)
    (tmp_path / "paper-h100" / "runs").mkdir(parents=True)
    text = printed(tmp_path, width, terminal=True)
    ids = [spec.run_id for name in ("smoke", "paper-h100") for spec in load_experiment(name).runs()]
    for expected in (*ids, "120/200", "3.2500", "1h20m", "123456789", "15m", "4.5000"):
        assert expected in text, expected
    assert "…" not in text
    failed = str(tmp_path / "smoke" / "runs" / SMOKE[2].run_id)
    lines = text.splitlines()
    assert f"  log: {failed}/launch.log" in lines
    assert f"{SMOKE[2].run_id}: rank 1: [no] memory" in lines
    assert f"{SMOKE[0].run_id}: was asked to stop (cancelled)" in lines
    assert f"{len(SMOKE)} runs: 1 running, {len(SMOKE) - 4} waiting, 1 timeout, 1 done, 1 failed" in lines
    assert "18 runs: 18 waiting" in lines
    assert all(len(line) <= width for line in lines if "log: " not in line)


def test_where_there_is_no_folder_of_runs(tmp_path: Path) -> None:
    assert printed(tmp_path, 80, terminal=True) == f"no experiment has runs in {tmp_path}\n"


def test_a_low_screen_keeps_the_counts(tmp_path: Path) -> None:
    everything(tmp_path, NOW)
    (tmp_path / "paper-h100" / "runs").mkdir(parents=True)
    found = [read(one, tmp_path, NOW) for one in choose([], tmp_path)]

    def shown(height: int) -> tuple[str, int]:
        console = Console(file=io.StringIO(), width=80, height=height, color_system=None)
        console.print(fitting(found, console))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert all(summary(experiment.runs) in text for experiment in found)
        return text, len(text.splitlines())

    text, lines = shown(200)
    assert all(run.run_id in text for experiment in found for run in experiment.runs)
    for height in (lines, lines - 1, 16, 10):
        assert shown(height)[1] <= height
    moving, quiet = SMOKE[0].run_id, load_experiment("paper-h100").runs()[0].run_id
    assert moving in shown(20)[0]
    assert quiet not in shown(20)[0]


def test_durations() -> None:
    seconds = {None: "", 0: "0s", 45.4: "45s", 59.7: "1m", 61: "1m", 3570: "1h00m", 11_100: "3h05m", 187_200: "2d04h"}
    assert {value: duration(value) for value in seconds} == seconds


def test_a_problem_stands_in_the_place_of_the_runs(tmp_path: Path) -> None:
    (tmp_path / "renamed" / "runs").mkdir(parents=True)
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(view([read(one, tmp_path, NOW) for one in choose([], tmp_path)], 80))
    assert "configs/experiments/renamed.yaml no longer exists" in console.file.getvalue()  # type: ignore[attr-defined]


# The command


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["status", *arguments])


def test_piped_output_has_a_line_for_every_run(tmp_path: Path) -> None:
    everything(tmp_path, time.time())
    result = invoke("--results", str(tmp_path))
    lines = result.stdout.splitlines()
    for spec, state in zip(SMOKE, STATES, strict=True):
        assert any(line.split()[:2] == [spec.run_id, state] for line in lines), spec.run_id


def test_json_records(tmp_path: Path) -> None:
    everything(tmp_path, time.time())
    (tmp_path / "renamed" / "runs").mkdir(parents=True)
    result = invoke("--results", str(tmp_path), "--json")
    records = {r["run_id"]: r for r in json.loads(result.stdout)}
    assert list(records) == [spec.run_id for spec in SMOKE]
    assert [r["state"] for r in records.values()] == STATES
    assert {r["experiment"] for r in records.values()} == {"smoke"}
    assert records[SMOKE[0].run_id]["seconds_left"] == 4800.0
    assert "renamed.yaml" in result.stderr


def test_exit_code_tells_of_failures_only(tmp_path: Path) -> None:
    run = tmp_path / "smoke" / "runs" / SMOKE[0].run_id
    for how, code in (("done", 0), ("diverged", 0), ("timeout", 0), ("cancelled", 0), ("failed", 1)):
        write(run, status=status(how))
        for option in ([], ["--json"]):
            assert invoke("smoke", "--results", str(tmp_path), *option).exit_code == code, how


def test_bad_input_is_explained(tmp_path: Path) -> None:
    unknown = invoke("smokee", "--results", str(tmp_path))
    assert unknown.exit_code == 2
    assert "experiment 'smokee': no file" in unknown.stderr
    both = invoke("smoke", "--results", str(tmp_path), "--json", "--watch", "1")
    assert (both.exit_code, both.stdout) == (2, "")
    assert "--json and --watch" in both.stderr
    assert invoke("--watch", "0").exit_code == 2


def test_watching_ends_with_the_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "smoke" / "runs" / spec.run_id for spec in SMOKE]
    for folder in folders:
        write(folder, 0, time.time(), job=job(), steps=[record(1)])
    pauses = []

    def pause(seconds: float) -> None:  # meanwhile a run ends
        pauses.append(seconds)
        write(folders[len(pauses) - 1], status=status("failed" if len(pauses) == 1 else "done"))

    monkeypatch.setattr(progress_view.time, "sleep", pause)
    result = invoke("smoke", "--results", str(tmp_path), "--watch", "7")
    assert pauses == [7.0] * len(SMOKE)
    assert result.exit_code == 1
    assert result.stdout.count(f"{len(SMOKE)} runs: {len(SMOKE) - 1} done, 1 failed") == 1


def test_ctrl_c_ends_watching_with_the_last_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smoke" / "runs").mkdir(parents=True)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(progress_view.time, "sleep", interrupt)
    result = invoke("smoke", "--results", str(tmp_path), "--watch", "1")
    assert result.exit_code == 0
    assert f"{len(SMOKE)} runs: {len(SMOKE)} waiting" in result.stdout


def test_it_starts_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from edgc.cli import app\n"
        f"try: app(['status', 'smoke', '--results', {str(tmp_path)!r}])\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "assert not {'torch', 'scipy', 'pandas', 'megatron'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr
