"""Table `kinds`: experts are told from MLPs, what was not used from what was, low rank from random."""

import math
from dataclasses import replace

import pytest
import torch

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.report.frames import Frames
from edgc.report.tables import kinds
from edgc.suite.config import Probe
from edgc.suite.training.probe import GradientProbe
from tests.unit.report.test_analysis_probe import STEPS, probed_study

EXPERT = "decoder.layers.0.mlp.experts.local_experts.{}.linear_fc1.weight"
ATTENTION = "decoder.layers.0.self_attention.linear_qkv.weight"


def read_again(records, folder):
    """A study of these records whose frames were written and read."""
    study = probed_study(records, folder / "runs")
    study.frames.write(folder / "frames")
    return replace(study, frames=Frames.read(folder / "frames"))


def test_runs_without_a_probe_have_no_row(tmp_path):
    assert kinds.build(read_again([], tmp_path)).empty


def test_kinds_are_told_apart(tmp_path):
    """Two experts of rank 1, one of which every other look finds unused, beside random matrices of one size."""
    generator = torch.Generator().manual_seed(1)
    probe = GradientProbe(0, Probe(entropy_every=1, rates=(1.0,), spectra_every=1))
    for step in range(STEPS):
        thin = [torch.randn(96, 1, generator=generator) @ torch.randn(1, 64, generator=generator) for _ in range(2)]
        thin[1] *= step % 2
        own = [NamedTensor(EXPERT.format(i), matrix) for i, matrix in enumerate(thin)]
        own.append(NamedTensor(ATTENTION, math.e * torch.randn(64, 64, generator=generator)))
        own.append(NamedTensor("decoder.final_layernorm.weight", torch.zeros(64)))
        probe.local(step, own)
        probe.average(step, own)
    built = kinds.build(read_again(probe.take(), tmp_path))
    assert "25.0 % of looks at an expert find it unused (n = 1)" in kinds.words(built)
    assert kinds.words(built[built["kind"] == "attention"]) == kinds.words(built.iloc[:0]) == ""
    table = built.set_index("kind")
    assert table["matrices"].to_dict() == {"expert": 2, "attention": 1}
    assert table["unused"].to_dict() == {"expert": 25, "attention": 0}
    assert table.loc["attention", "entropy"] - 1 == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=0.01)
    assert table.loc["expert", "effective"] == pytest.approx(1 / 64, rel=0.01)
    assert table.loc["expert", "lost"] == pytest.approx(0, abs=1e-3)
    assert table.loc["attention", "random"] == pytest.approx(1, abs=0.02)
    assert table.loc["attention", "lost"] > 0.5
