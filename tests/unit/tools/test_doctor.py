"""The doctor finds what is there, says what a missing piece would enable, and fails only for required ones."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from edgc.tools import doctor
from edgc.tools.doctor import Finding


def printed(findings: list[Finding]) -> tuple[int, str]:
    stream = io.StringIO()
    code = doctor.report(findings, Console(file=stream, width=200))
    return code, stream.getvalue()


def test_this_environment_has_everything_required() -> None:
    findings = doctor.doctor()
    assert [f.name for f in findings if f.required and f.found is None] == []
    assert all(f.found or f.remedy for f in findings)
    code, text = printed(findings)
    assert code == 0
    assert all(f.name in text and f.enables in text for f in findings)


def test_exit_code_follows_required_findings() -> None:
    here = Finding("one", "1.0", "first thing", "", required=True)
    optional = Finding("two", None, "second thing", "get two")
    required = dataclasses.replace(optional, required=True)
    assert printed([here])[0] == 0
    code, text = printed([here, optional])
    assert code == 0
    assert "second thing" in text
    assert "missing: get two" in text
    code, text = printed([here, required])
    assert code == 1
    assert "required and missing: two" in text


def test_programs_and_folders_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> dict[str, str | None]:
        return {finding.name: finding.found for finding in doctor.doctor()}

    monkeypatch.setattr(doctor, "SYSTEM_PATH", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("EDGC_DATA", raising=False)
    monkeypatch.setenv("EDGC_EVAL_DATA", str(tmp_path / "absent"))
    before = found()
    assert [before[name] for name in ("slurm", "network shaping", "EDGC_DATA", "EDGC_EVAL_DATA")] == [None] * 4
    for program in ("sbatch", "squeue", "srun", "tc"):
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("EDGC_DATA", str(tmp_path))
    after = found()
    assert after["slurm"] == "sbatch, squeue, srun"
    assert after["network shaping"] is None  # ip is not there
    assert after["EDGC_DATA"] == str(tmp_path)


@pytest.mark.parametrize(("capability", "lacks"), [((7, 0), "sm_70"), ((7, 5), ""), ((9, 0), "")])
def test_a_gpu_older_than_torchs_kernels_is_refused(
    capability: tuple[int, int], lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "is_available": True, "device_count": 2, "get_device_name": "Example",
        "get_device_capability": capability, "get_arch_list": ["sm_75", "sm_90", "sm_120", "compute_120"],
    }.items():  # fmt: skip
        monkeypatch.setattr(f"torch.cuda.{name}", lambda *unused, value=value: value)
    gpu = next(finding for finding in doctor.doctor() if finding.name == "GPU")
    if lacks:
        assert gpu.found is None
        assert gpu.required
        assert lacks in gpu.remedy
        assert "BUILD=cuda126" in gpu.remedy
    else:
        assert gpu.found == "2 × Example"


def test_a_gpu_that_torch_cannot_use_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 'GPU 0: Example'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    gpu = next(finding for finding in doctor.doctor() if finding.name == "GPU")
    assert gpu.found is None
    assert "BUILD=cuda" in gpu.remedy
