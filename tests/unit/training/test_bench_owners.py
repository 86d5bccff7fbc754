"""`edgc bench owners`: bytes by hand, what codes lose, and when a claim holds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.report.owner_table import answers, present
from edgc.suite.training.bench.owners import METHODS


def test_a_run_writes_numbers_words_and_a_table(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "owners.csv"
    command = ["bench", "owners", "--corpus", str(corpus), "--ranks", "2", "--ranks", "3", "--steps", "2"]
    result = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert result.exit_code == 0, result.output
    rows = pd.read_csv(out)
    assert [*rows["method"]] == [*METHODS, *METHODS]
    assert "| 2 | TAGC |" in out.with_suffix(".md").read_text(encoding="utf-8")
    own = rows.set_index(["method", "ranks"])
    for ranks in (2, 3):
        share = (ranks - 1) / ranks
        by_hand = {"dense": 4, "dense_bf16": 2, "int8": 1 + 2 / 128, "int4": 0.5 + 2 / 128}
        by_hand |= {"bitmap_values": 1 / 8 + 0.2 * (1 + 2 / 64), "tagc_released": 2 + 2 / 8}
        for name, size in by_hand.items():
            assert own.loc[(name, ranks)]["bytes"] == pytest.approx(share * size, rel=0.01), name
        # what an owner tells of its part, a bit an element, goes to each of the others
        assert own.loc[("tagc", ranks)]["bytes"] == pytest.approx(share * (2 + 2 / 8), rel=0.01)
        errors = own.xs(ranks, level="ranks")["error"]
        assert errors["dense"] < 1e-6 < errors["dense_bf16"] < errors["int8"] < errors["int4"] < errors["bitmap_values"]
        assert (own.xs(ranks, level="ranks")[["encode", "decode"]] > 0).all().all()


@pytest.mark.parametrize(("tagc", "verdict"), [(0.5, "is within reach"), (3.9, "is out of reach")])
def test_the_claim_is_judged_by_the_best_of_all_links(tagc: float, verdict: str) -> None:
    """Without any arithmetic and of gathers in fp32, a step has 12 bytes an element; 15 % of it are 1.8."""
    sizes = dict.fromkeys(METHODS, 4.0) | {"tagc": tagc}
    common = {"ranks": 2, "elements": 1e6, "error": 0.0, "encode": 0.0, "decode": 0.0, "union": 0.3, "left": 0.0}
    rows = pd.DataFrame([common | {"method": name, "bytes": size / 2} for name, size in sizes.items()])
    told = answers(rows)
    assert any(f"“Up to 15% faster than FSDP” {verdict}" in line for line in told)
    assert any(line.startswith("“Lossless” holds for 2 ranks only") for line in told)
    assert len(present(rows)) == len(METHODS)
