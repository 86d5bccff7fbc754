"""A step as spans: nothing happens twice at a time in one place, and the picture holds all of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.core.settings.method import Method
from edgc.report import timeline_figure
from edgc.suite.cluster.forecasts import forecast
from edgc.suite.cluster.question import Question, calibration_of, chosen, of_method
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.whole_run import WholeRun
from edgc.suite.config import load

METHODS = ("dense", "dense_bf16_overlap", "powersgd")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shard", ["none", "optimizer", "full"])
def test_a_device_and_a_link_do_one_thing_at_a_time_until_the_step_ends(name: str, shard: str) -> None:
    model, batches = ("gpt2-345m", {"micro_batch": 1, "global_batch": 64}) if shard == "full" else ("gpt2-2.5b", {})
    spec, method = Question(model, "v100x32", training={"shard": shard, **batches}).spec(), load(Method, name)
    rates = calibration_of(spec.cluster)
    step = WholeRun.of(StepModel(of_method(spec, method), rates, "fp32")).compressed.step
    rows = [*step.drawn()]
    assert max(row["end"] for row in rows) == pytest.approx(step.seconds)
    for stage in range(spec.parallel.pipeline):
        for room in ("device", "link"):
            own = sorted((r["begin"], r["end"]) for r in rows if (r["stage"], r["room"]) == (stage, room))
            assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(own))
        backward = sum(r["end"] - r["begin"] for r in rows if (r["stage"], r["what"]) == (stage, "backward"))
        model = StepModel(spec, rates, "fp32")
        assert backward == pytest.approx(spec.micro_batches * model.stages[stage].backward)
    assert {"wire", "forward", "backward", "optimizer"} <= {row["what"] for row in rows}
    assert any(row["what"] == "gather" for row in rows) == (shard != "none")


def test_every_span_is_drawn() -> None:
    rows = forecast(Question("gpt2-2.5b", "v100x32").scenario(), chosen(["powersgd"])).drawn()
    data = pd.DataFrame(rows)
    drawn = [
        layer for _, own in data.groupby("title") for view in timeline_figure.draw(own, data) for layer in view.layers
    ]
    assert sum(len(layer.rows) for layer in drawn) == len(rows)


@pytest.mark.tier("test")
def test_the_command_writes_it_and_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    asked = ["plan", "--model", "gpt2-2.5b", "--cluster", "v100x32", "--method", "powersgd", "--timeline"]
    done = CliRunner().invoke(app, [*asked, str(tmp_path / "step.svg")])
    assert done.exit_code == 0
    assert "stage 3" in (tmp_path / "step.svg").read_text()
    refused = CliRunner().invoke(app, [*asked, str(tmp_path / "step.jpg")])
    assert refused.exit_code != 0
    assert "must end in .svg, .png, .pdf" in refused.output
