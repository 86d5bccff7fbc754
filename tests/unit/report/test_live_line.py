"""The line that lives while Snakemake works, from events as Snakemake gives them."""

from __future__ import annotations

import io
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from edgc.report.status.live import LiveLine
from edgc.suite.config import RunSpec, load_experiment


class Shown:
    """A line over the runs of `smoke`, in a folder of results that begins empty."""

    def __init__(self, results: Path) -> None:
        self.specs: list[RunSpec] = load_experiment("smoke").runs()
        self.runs, self.stream = results / "smoke" / "runs", io.StringIO()
        self.logger = logging.Logger("snakemake")
        self.line = LiveLine("smoke", self.specs, results, self.stream)
        self.logger.addHandler(self.line)

    def tell(self, event: LogEvent, level: int = logging.INFO, **said: Any) -> None:
        self.logger.log(level, None, extra={"event": event, **said})

    def begin(self, job: int, rule: str, run: str = "") -> None:
        self.tell(LogEvent.JOB_INFO, jobid=job, rule_name=rule, wildcards={"run": run} if run else {})

    def train(self, spec: RunSpec, step: int, seconds: float) -> None:
        folder = self.runs / spec.run_id
        folder.mkdir(parents=True, exist_ok=True)
        rows = [{"step": k + 1, "loss": 7.25, "t_step": seconds} for k in range(step)]
        (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def now(self) -> str:
        return self.line.line(time.time())


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    return Shown(tmp_path)


def test_says_what_runs_how_far_and_how_long_still(shown: Shown) -> None:
    first, *others = shown.specs
    shown.tell(LogEvent.RUN_INFO, stats={"total": 30, "train": len(shown.specs)})
    shown.begin(1, "train", first.run_id)
    assert shown.now() == f"smoke: 0 of 30 jobs · {first.run_id.rpartition('-')[0]} step 0/200"
    shown.train(first, step=50, seconds=2.0)
    # 150 steps of 2 s, and as long for each of the others as this one takes in all
    assert 150 * 2 * (1 + len(others)) / 60 == 25
    assert shown.now().endswith("step 50/200, loss 7.25 · about 25m of training left")


def test_of_several_jobs_names_two(shown: Shown) -> None:
    for job, rule in enumerate(("collect", "table_time", "table_paper", "figure_parts")):
        shown.begin(job, rule)
    shown.tell(LogEvent.JOB_FINISHED, job_id=0)
    assert shown.now() == "smoke: 1 of 4 jobs · table_time 0s · table_paper 0s · 1 more"


def test_a_failed_job_says_why_where_and_once(shown: Shown, tmp_path: Path) -> None:
    run, log = shown.specs[0].run_id, tmp_path / "launch.log"
    log.write_text("".join(f"line {k}\n" for k in range(100)))
    others = logging.StreamHandler(other := io.StringIO())
    shown.logger.addHandler(others)
    shown.line.begin([others])
    shown.begin(3, "train", run)
    shown.logger.info("Select jobs to execute...")
    shown.tell(LogEvent.JOB_ERROR, logging.ERROR, jobid=3, rule_name="train", log=[f"{log} (check log file(s))"])
    shown.logger.error("RuleException", extra={"event": LogEvent.ERROR, "exception": "RuleException"})
    shown.logger.warning("a site's own warning")
    shown.line.end("not finished")
    said = shown.stream.getvalue().splitlines()
    assert said[0] == f"train of {run} failed:"
    assert said[1:-2] == [f"  line {k}" for k in range(80, 100)]
    assert said[-2:] == [f"  log: {log}", "not finished"]
    shown.logger.info("Complete log(s): …")
    assert other.getvalue() == "a site's own warning\nComplete log(s): …\n"
