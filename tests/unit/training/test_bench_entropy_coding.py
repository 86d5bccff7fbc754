"""`edgc bench lossless`: its numbers against those known by hand, and what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from edgc.cli import app
from edgc.core.aggregators.byte_planes import BytePlanes
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.report import lossless_table
from edgc.report.bench_table import text, write
from edgc.report.lossless_table import FLOATS, answers, present
from edgc.suite.training.bench.entropy_coding import Sent, coded
from edgc.suite.training.bench.overheard import Overheard

ROW = {"step": 1, "raw": 4.0, "zstd": 3.8, "planes": 3.0, "zstd_bound": 3.9, "planes_bound": 2.9, "random": 0.5}


def test_a_run_writes_numbers_words_and_a_table(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "lossless.csv"
    command = ["bench", "lossless", "--corpus", str(corpus), "--steps", "2", "--steps", "1", "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    rows = pd.read_csv(out)
    assert list(rows["step"].unique()) == [1, 2]
    assert out.with_suffix(".manifest.json").is_file()
    assert "| fp32 gradients | 2 |" in out.with_suffix(".md").read_text(encoding="utf-8")
    raw = rows[rows["step"] == 2].set_index("what")["raw"]
    assert raw["fp32 gradients"] == raw["fp32 factors P of PowerSGD"] == raw["fp32 values of Top-K"] == 4
    assert raw["bf16 mean gradients"] == 2
    assert raw["int8 codes"] == pytest.approx(1 + 2 / 128, rel=1e-3)  # a scale of two bytes for 128 elements
    assert raw["int4 codes"] == pytest.approx(1 / 2 + 2 / 128, rel=1e-3)
    assert raw["one-bit codes"] == pytest.approx(1 / 8 + 2 / 128, rel=1e-3)
    assert (rows["planes"] <= rows["raw"]).all()
    assert (rows["planes_bound"] <= rows["zstd_bound"] * (1 + 1e-5)).all(), "to know the plane cannot hurt"
    for line in answers(rows):
        assert line in out.with_suffix(".md").read_text(encoding="utf-8")


def test_bounds_and_random_planes_by_hand() -> None:
    """Words whose low byte takes all values equally often, the next two values, and the others one."""
    low = np.tile(np.arange(256), 64)
    words = torch.from_numpy((low + 256 * (np.arange(len(low)) // 256 % 2)).astype("<i4"))
    row = coded(Sent("words", words, len(words)), BytePlanes())
    assert row["planes_bound"] == pytest.approx((8 + 1 + 0 + 0) / 8)
    assert row["random"] == 0.25
    assert row["raw"] == 4
    shares = [(1 / 256 + 2.5) / 4, (1 / 256 + 0.5) / 4, *[1 / 1024] * 254]  # zeros, ones, and all other bytes
    assert row["zstd_bound"] == pytest.approx(4 / 8 * sum(-share * np.log2(share) for share in shares))


def rows_of(**planes: float) -> pd.DataFrame:
    kinds = dict.fromkeys(FLOATS, 3.0) | planes
    speeds = {"encode": 300e6, "decode": 600e6}
    return pd.DataFrame([ROW | speeds | {"what": what, "planes": left} for what, left in kinds.items()])


def test_it_says_what_is_left_and_up_to_which_link_it_pays() -> None:
    told = "\n".join(answers(rows_of(**{"int8 codes": 1.0})))
    assert "Of fp32 gradients, zstd in byte planes leaves 75.0% of the bytes, and zstd as it comes 95.0%" in told
    assert "fp32 gradients travel 1.33 times as fast at most" in told
    # a byte takes 1/300 + 1/600 = 1/200 of a microsecond to code, and saves a quarter of itself: 50 MB/s
    assert "links below 400 Mbit/s" in told
    assert "Of int8 codes, 25.0% of the bytes are left: 1.00 bytes an element in the place of 4.00." in told
    assert len(present(rows_of())) == len(FLOATS)


def test_what_is_overheard_is_what_was_handed_over_and_is_passed_on() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        overheard, own = Overheard(comm), torch.full((2,), float(comm.rank))
        gathered, swapped, part = torch.empty(4), torch.empty(2), torch.empty(1)
        overheard.all_gather(gathered, own).wait()
        overheard.all_to_all(swapped, own).wait()
        overheard.reduce_scatter(part, own).wait()
        overheard.broadcast(shared := own.clone(), source=1).wait()
        overheard.all_reduce(total := own.clone()).wait()
        overheard.pair(1 - comm.rank).all_reduce(both := own.clone()).wait()
        assert all(torch.equal(message, own) for message in overheard.messages)
        assert len(overheard.messages) == 6
        assert gathered.tolist() == [0, 0, 1, 1]
        assert (swapped.tolist(), part.tolist()) == ([0, 1], [1])
        assert shared.tolist() == total.tolist() == both.tolist() == [1, 1]

    run_ranks(2, body)


def test_words_follow_from_the_numbers_in_the_file(tmp_path: Path) -> None:
    """A share that six digits round across the border between 25.0% and 25.1%."""
    rows = rows_of(**{"int8 codes": 4 * 0.25049999})
    write(lossless_table, rows, out := tmp_path / "lossless.csv")
    told = answers(pd.read_csv(out))
    assert told != answers(rows)
    assert all(line in out.with_suffix(".md").read_text(encoding="utf-8") for line in told)
    assert all(line in text(lossless_table, rows) for line in told), "a terminal says the same"
