"""What `edgc train` refuses before any process starts, and how it explains a failure in one screen."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_json
from edgc.suite.cluster.slurm import Allocation
from edgc.suite.config import RunSpec, load_experiment
from edgc.suite.training.checks import check_folder, check_loop, check_machine
from edgc.suite.training.failures import Failure, explain


def spec(**cluster: Any) -> RunSpec:
    plain = load_experiment("smoke").runs()[0]
    return plain.model_copy(update={"cluster": plain.cluster.model_copy(update=cluster)})


def test_a_taken_port_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"cluster\.port = {port} .*choose another port"):
            check_machine(spec(port=port), None)
    check_machine(spec(port=None), None)


def test_several_nodes_and_missing_gpus_are_refused() -> None:
    with pytest.raises(UserError, match=r"cluster\.nodes = 3 .*no SLURM job"):
        check_machine(spec(nodes=3), None)
    with pytest.raises(UserError, match=r"cluster\.nodes = 3 .*job 7 has 2"):
        check_machine(spec(nodes=3), Allocation("7", ("a", "b"), None))
    with pytest.raises(UserError, match=r"cluster\.processes_per_node = 4000 .*GPUs"):
        check_machine(spec(device="cuda", processes_per_node=4000), None)
    with pytest.raises(UserError, match=r"loop ddp, .*cluster\.device cuda .*set it to cpu"):
        check_loop(spec(device="cuda").model_copy(update={"loop": "ddp"}))


def report(run: Path, rank: int, time: float, message: str, known: bool = False) -> None:
    record = {"rank": rank, "time": time, "message": message, "known": known}
    write_json(run / "errors" / f"rank-{rank:05d}.json", record)


def test_the_first_error_is_told_with_its_log(tmp_path: Path) -> None:
    report(tmp_path, 0, 12.0, "RuntimeError: connection closed by peer")
    report(tmp_path, 3, 11.0, "ValueError: the cause")
    text = explain(tmp_path, [Failure(0, 1, 5.0), Failure(3, 1, 4.0), Failure(1, -15, 4.5)])
    assert "rank 3 failed first: ValueError: the cause" in text
    assert "rank-00003.log" in text
    assert "closed by peer" not in text
    assert "it begins anew" in text
    (tmp_path / "checkpoint" / "step-40").mkdir(parents=True)
    assert "it goes on from its checkpoint at step 40" in explain(tmp_path, [Failure(3, 1, 4.0)])


def test_a_killed_rank_is_the_cause_whatever_its_peers_say(tmp_path: Path) -> None:
    report(tmp_path, 0, 12.0, "RuntimeError: connection closed by peer")
    failures = [Failure(0, 1, 3.0), Failure(2, -9, 4.0), Failure(1, -15, 4.0), Failure(3, -9, 5.0)]
    assert "rank 2 failed first: process was ended by SIGKILL" in explain(tmp_path, failures)


def test_a_message_for_the_user_stands_alone(tmp_path: Path) -> None:
    report(tmp_path, 1, 5.0, "training.lr = 1: too high", known=True)
    assert explain(tmp_path, [Failure(1, 2, 5.0)]) == "training.lr = 1: too high"


def test_a_corpus_of_other_text_is_refused(tmp_path: Path) -> None:
    plain = load_experiment("smoke").runs()[0]
    corpus = {"settings": plain.corpus.model_dump(mode="json"), "sha256": {"train.bin": "aa"}}
    check_folder(plain, tmp_path, corpus)
    write_json(tmp_path / "spec.json", plain.model_dump(mode="json"))
    write_json(tmp_path / "manifest.json", {"corpus": {"train.bin": "bb"}})
    with pytest.raises(UserError, match="other text than corpus stdlib"):
        check_folder(plain, tmp_path, corpus)
    write_json(tmp_path / "manifest.json", {"corpus": {"train.bin": "aa"}})
    check_folder(plain, tmp_path, corpus)
