"""`snakemake --sdm apptainer` with a stand-in for Apptainer: in which image and environment jobs run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from edgc.suite.config import load_experiment
from tests.workflow.conftest import Project

# What Apptainer 1.4 does with the environment (internal/pkg/util/env): APPTAINER_… stays outside, APPTAINERENV_X is X
# inside, and the search path is the image's. Instead of a container there is this machine, with one interpreter.
APPTAINER = """#!PYTHON
import json, os, sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("apptainer version 1.4.0"))
inside = {name: value for name, value in os.environ.items() if not name.startswith("APPTAINER")}
prefix = "APPTAINERENV_"
inside |= {name.removeprefix(prefix): value for name, value in os.environ.items() if name.startswith(prefix)}
*options, image, shell, _, command = sys.argv[1:]
with open("CALLS", "a") as calls:
    print(json.dumps([options, image, command, inside["EDGC_PYTHON"]]), file=calls)
inside["PATH"] = os.path.dirname(sys.executable) + ":/usr/bin:/bin"
os.execvpe(shell, [shell, "-c", command], inside)
"""


class Apptainer:
    """The stand-in, first on the search path."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = folder / "calls.jsonl"
        program = folder / "apptainer"
        program.write_text(APPTAINER.replace("PYTHON", sys.executable, 1).replace("CALLS", str(self.log)))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")

    def calls(self) -> list[list]:
        """Of every job: options, image, command, and EDGC_PYTHON inside."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def apptainer(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Apptainer:
    monkeypatch.delenv("EDGC_CONTAINER", raising=False)
    return Apptainer(tmp_path_factory.mktemp("bin"), monkeypatch)


SMOKE = ("--config", "experiment=smoke")
TRAINED = f"results/smoke/runs/{load_experiment('smoke').runs()[0].run_id}/trained"  # two jobs: prepare and train


def test_jobs_run_in_the_image_with_its_own_interpreter(project: Project, apptainer: Apptainer) -> None:
    (project.root / "edgc.sif").touch()
    done = project.snakemake(TRAINED, "--sdm", "apptainer", "--apptainer-args=--nv --bind /scratch", *SMOKE)
    assert done.returncode == 0, done.stdout + done.stderr
    calls = apptainer.calls()
    for (options, image, command, interpreter), rule in zip(calls, ["prepare", "train"], strict=True):
        assert options[:6] == ["exec", "--home", str(project.root), "--nv", "--bind", "/scratch"]
        assert (image, interpreter) == ("edgc.sif", "python")
        assert f'"$EDGC_PYTHON" -m edgc {rule}' in command


def test_rules_that_run_where_snakemake_does_are_in_the_image_too(
    project: Project, apptainer: Apptainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = project.root / "another.sif"
    image.touch()
    monkeypatch.setenv("EDGC_CONTAINER", str(image))
    for record in ("trained", "zero_shot.json"):
        for spec in load_experiment("smoke").runs():
            path = project.root / "results/smoke/runs" / spec.run_id / record
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    project.snakemake(
        "collect", "--allowed-rules", "collect", "--sdm", "apptainer", *SMOKE
    )  # fails: nothing to collect
    assert [(image, interpreter) for _, image, _, interpreter in apptainer.calls()] == [(str(image), "python")]


def test_a_missing_image_is_said_before_any_job(project: Project, apptainer: Apptainer) -> None:
    done = project.snakemake(TRAINED, "--sdm", "apptainer", *SMOKE)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "EDGC_CONTAINER: there is no edgc.sif" in text
    assert "Traceback" not in text
    assert apptainer.calls() == []


def test_without_the_flag_no_rule_names_an_image(
    project: Project, apptainer: Apptainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake would note the image of a run that never was in it, and the report would show it."""
    monkeypatch.setenv("EDGC_CONTAINER", "nowhere.sif")
    done = project.snakemake("prepare", *SMOKE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "containers: ignored" not in done.stdout + done.stderr
    assert apptainer.calls() == []
