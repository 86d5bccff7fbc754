"""`edgc bench ops` on small matrices: what it prints, and that a wrong result is not timed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from edgc.cli import app
from edgc.report.bench_figure import write_bench_figure
from edgc.suite.training.bench import ops as report
from edgc.suite.training.bench.cases import exchange_case, implementations
from edgc.suite.training.bench.ops import STAGES, ShapeSet, interleaved, shape_sets

SMALL = ShapeSet("small", [(300, 260), (260, 400)] * 3)


def test_stages_have_the_sizes_of_the_papers_models() -> None:
    sizes = {s.name: s.numel for s in shape_sets()}
    assert sizes["gpt2-124m"] == 12 * 12 * 768**2
    assert sizes["gpt2-2.5b/TP4"] == 13 * 12 * 1920**2 // 4
    assert sizes["gpt2-12.1b/TP4"] == 19 * 12 * 3584**2 // 4
    assert set(sizes) == {name for name, *_ in STAGES}


@pytest.mark.tier("test")
def test_a_run_writes_every_operation_and_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "shape_sets", lambda: [SMALL])
    out = tmp_path / "ops.csv"
    assert report.run("cpu", out, quick=True) == 0
    data = pd.read_csv(out)
    assert list(data.columns) == report.COLUMNS
    assert {"exchange-core", "encode", "moments-sampled", "select"} <= set(data["op"])
    core = data[data["op"] == "exchange-core"]
    assert set(core["implementation"]) == {"edgc-torch", "torch-hook", "loop", "eager"}
    assert set(core["rank"]) == {32, 64}
    assert (data["median_ms"] > 0).all()
    assert (data["p20_ms"] <= data["median_ms"]).all()
    assert "small: 6 matrices, 0.5M" in capsys.readouterr().out
    assert [path.stat().st_size > 1000 for path in write_bench_figure(out)] == [True, True]


@pytest.mark.tier("all")
def test_a_wrong_implementation_is_named_and_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "shape_sets", lambda: [SMALL])
    lowrank = implementations(kernels=False)["edgc-torch"]["lowrank"]
    right = lowrank.project

    def wrong(wholes: list[torch.Tensor], bases: list[torch.Tensor], outs: list[torch.Tensor]) -> None:
        right(wholes, bases, outs)
        outs[0][0, 0] += 10

    monkeypatch.setattr(lowrank, "project", wrong)
    out = tmp_path / "ops.csv"
    assert report.run("cpu", out, quick=True) == 1
    data = pd.read_csv(out)
    assert "project" not in set(data["op"])
    assert set(data.loc[data["op"] == "exchange-core", "implementation"]) == {"torch-hook", "loop", "eager"}
    assert "project small rank 32: edgc-torch is wrong" in capsys.readouterr().err


def test_all_ways_to_exchange_agree_with_the_formula() -> None:
    case = exchange_case(SMALL.shapes[:2], "cpu", kernels=False, rank=8)
    for name in case.work:
        assert case.error(name) <= 1e-4, name


def test_rounds_are_interleaved_and_the_first_is_not_counted() -> None:
    order: list[str] = []
    times = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, "cpu", 3, 0.0)
    assert order == ["b", "a", "a", "b", "b", "a", "a", "b"]
    assert all(t.p20 <= t.median <= t.p80 for t in times.values())


def test_bad_input_is_named() -> None:
    result = CliRunner().invoke(app, ["bench", "ops", "--device", "tpu"])
    assert result.exit_code == 2
    assert "allowed: cpu, cuda" in result.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "ops", "--device", "cuda"])
    assert result.exit_code == 2
    assert "torch sees no GPU here" in result.output
