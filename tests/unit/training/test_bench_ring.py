"""`edgc bench ring`: what is simulated sums what it should, and what it writes says so."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from edgc.suite.training.bench import ring


def test_in_fp32_every_order_of_summing_gives_the_sum() -> None:
    sent = ring.gradients(8, noise=1.0, seed=0)
    for total in (ring.ring, ring.tree):
        torch.testing.assert_close(total(sent.double()), sent.double().sum(0))
    assert torch.equal(ring.ring(sent[:2]), sent[0] + sent[1])


def test_a_ring_in_bf16_rounds_at_every_rank() -> None:
    ones = torch.ones(512, 3)
    assert ring.WIRES["bf16 ring"](ones).tolist() == [256.0] * 3  # 256 + 1 is 256 in bf16
    assert ring.WIRES["bf16 tree"](ones).tolist() == [512.0] * 3
    assert ring.WIRES["bf16 sent, fp32 sum"](ones).tolist() == [512.0] * 3


def test_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "RANKS", (2, 8))
    monkeypatch.setattr(ring, "ELEMENTS", 512)
    out = tmp_path / "ring.csv"
    ring.run(out)
    numbers = pd.read_csv(out)
    assert len(numbers) == 2 * len(ring.NOISE)
    assert (numbers["fp32 ring"] < 1e-6).all()
    assert (numbers["bf16 sent, fp32 sum"] < numbers["bf16 ring"]).all()
    assert out.with_suffix(".md").read_text(encoding="utf-8").count("\n| ") == len(numbers) + 2  # with its head
    assert out.with_suffix(".manifest.json").is_file()
