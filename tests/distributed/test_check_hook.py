"""`edgc check hook`: right exchanges keep all laws, and each law broken once is found by that law alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgc.hooks.check import MEANING, main
from tests.distributed.ranks import PROGRAMS, on_ranks
from tests.fixtures.limits import HANG

ROOT = Path(__file__).parents[2]
BROKEN = {law.replace(" ", "_"): {law} for law in MEANING if law != "16 bits"} | {
    "sixteen_bits": {"16 bits"},
    "left_out": {"mean"},
    "late": {"mean"},
    "unused_apart": {"zeros and unused"},
    "fsdp_mean": {"mean"},
    "torch": set(),
    "torch_bf16": set(),
    "torch_fsdp": set(),
    "powersgd": set(),
    "fsdp_int4": set(),
    # its error feedback keeps a NaN for ever, and its fp16 factors overflow where no gradient does
    "torch_powersgd": {"not finite", "16 bits"},
}
NOT_OF_FSDP = {"equal ranks", "new buckets"}


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", BROKEN)
def test_exactly_the_broken_laws_are_found(name: str) -> None:
    found = on_ranks("wrong_hooks.py", 1, name, needs="edgc.hooks.check")
    assert [*found] == [*MEANING]
    assert {law for law, (status, _) in found.items() if status == "broken"} == BROKEN[name], found
    missing = NOT_OF_FSDP if "fsdp" in name else {"resume"} if name == "determinism" else set()
    assert {law for law, (status, _) in found.items() if status == "not applicable"} == missing


def check_hook(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgc", "check", "hook", *arguments]
    return subprocess.run(command, cwd=PROGRAMS, capture_output=True, text=True, timeout=HANG, check=False)


def test_the_command_names_the_law_and_what_it_means() -> None:
    done = check_hook("wrong_hooks:equal_ranks", "--ranks", "2", "--steps", "16")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if "broken" in line] == [line for line in lines if line.startswith("equal ranks")]
    assert MEANING["equal ranks"] in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["wrong_hooks"], "must be module:function"),
        (["no_such_module:hook"], "No module named 'no_such_module'"),
        (["wrong_hooks:nothing"], "has no nothing"),
        (["wrong_hooks:TARGETS"], "nothing that can be called"),
        (["wrong_hooks:mean", "--fsdp"], "FSDP2 has no hook"),
        (["wrong_hooks:powersgd", "--state", "wrong_hooks:torch_state"], "--state: is of a hook"),
    ],
)
def test_what_cannot_be_checked_is_said(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(PROGRAMS)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
