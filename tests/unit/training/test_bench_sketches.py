"""`edgc bench sketches`: its bytes, what it takes for right, and what it says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.report.sketch_table import PLAIN, answers, present
from edgc.suite.training.bench import sketches
from edgc.suite.training.bench.sketches import METHODS, arithmetic


def test_a_run_writes_numbers_words_and_a_table(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "RATIOS", (0.05,))
    out = tmp_path / "sketches.csv"
    command = ["bench", "sketches", "--corpus", str(corpus), "--ranks", "2", "--ranks", "3", "--steps", "1"]
    result = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert result.exit_code == 0, result.output
    rows = pd.read_csv(out)
    assert len(rows) == 2 * (len(METHODS) + 1 + len(PLAIN))
    assert out.with_suffix(".manifest.json").is_file()
    assert "| 2 | 5% | tagc |" in out.with_suffix(".md").read_text(encoding="utf-8")
    own = rows.set_index(["method", "ranks"])
    for ranks in (2, 3):
        ours, released = own.loc[("lhc", ranks)], own.loc[("tagc_released", ranks)]
        assert ours["sent"] == pytest.approx(0.05, abs=1e-3)
        assert ours["sent"] < ours["union"] < ranks * ours["sent"]
        assert ours["left"] == 0
        assert ours["error"] < 1e-5
        assert released["sent"] > ours["sent"]
        assert released["left"] > 0.1
        # half a cell of 4 bytes and one bit an element, and back: as an all-reduce
        assert own.loc[("tagc", ranks)]["replicated"] == pytest.approx(2 * (ranks - 1) / ranks * (2 + 1 / 8), rel=1e-3)
        # to owners only: not back, but a bit an element on what they got
        assert own.loc[("tagc", ranks)]["to_owner"] == pytest.approx((ranks - 1) / ranks * (2 + 2 / 8), rel=1e-3)
    assert own.loc[("lhc", 3)]["union"] > own.loc[("lhc", 2)]["union"]


def test_arithmetic_of_four_ranks() -> None:
    """By hand: three quarters of what a rank has goes to others."""
    of = {row["method"]: row for row in arithmetic(4, sent=0.25, union=0.5)}
    assert of["bf16"]["replicated"] == 2 * 2 * 0.75
    assert of["pairs"]["replicated"] == 3 * 8 * 0.25
    assert of["bitmap_fp32"]["to_owner"] == (0.125 + 1) * 0.75
    assert of["bitmap_int8"]["replicated"] == (0.125 + 0.25 + 0.125 + 0.5) * 0.75
    assert of["least"]["to_owner"] == pytest.approx((0.125 + 4 * 0.5 / 0.818) * 0.75)


def rows_of(**bytes_and_left: tuple[float, float | None]) -> pd.DataFrame:
    common = {"ranks": 2, "ratio": 0.2, "sent": 0.2, "union": 0.3, "cells": 1.5, "error": 0.0}
    return pd.DataFrame(
        [
            common | {"method": name, "replicated": size, "to_owner": size / 2, "left": left}
            for name, (size, left) in bytes_and_left.items()
        ]
    )


@pytest.mark.parametrize(
    ("size", "left", "verdict"),
    [
        (0.5, 0.0, "A sketch pays for lhc, 2 ranks at 20%:"),
        (0.5, 0.5, "A sketch does not pay anywhere here:"),
        (0.7, 0.0, "A sketch does not pay anywhere here:"),
    ],
)
def test_a_sketch_pays_that_is_right_and_smaller_than_all_others(size: float, left: float, verdict: str) -> None:
    plain = dict.fromkeys(PLAIN, (3.0, None)) | {"bitmap_int8": (0.6, None)}
    rows = rows_of(lhc=(size, left), **plain)
    assert answers(rows)[-1].startswith(verdict)
    assert present(rows).loc[0, "of bf16"] == f"{size / 3:.3f}"
