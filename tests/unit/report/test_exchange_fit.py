"""What is said of times of exchanges: exact lines are found again, and a wrong slope makes a stage late or early."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from edgc.report.exchange_fit import alignment, error_share, fits, write
from edgc.report.redraw import redraw
from edgc.report.site.contents import _study

RANKS = (4, 8, 16, 32, 64, 128)
ALPHA, ETA, SLACK = 0.05, 2e-3, 32 * 2e-3
SHAPES = [(256, 256), (256, 1024)]


@pytest.fixture
def rows() -> pd.DataFrame:
    """T = 50 ms + 2 ms · r, 10 % faster in one repeat, 10 % slower in another; uncompressed 900 ms."""
    seconds = {0: 0.9} | {rank: ALPHA + ETA * rank for rank in RANKS}
    return pd.DataFrame(
        {"links": links, "rate": "50mbit", "processes": 4, "repeat": repeat, "rank": rank, "seconds": pace * whole}
        for links in ("even", "20 ms apart")
        for repeat, pace in ((1, 1.0), (2, 0.9), (3, 1.1))
        for rank, whole in seconds.items()
    )


def test_an_exact_line_is_found_with_its_ends(rows: pd.DataFrame) -> None:
    line = fits(rows).iloc[0]
    for name, value in (("alpha_ms", 50.0), ("slope_ms", 2.0)):
        assert [line[name], line[f"{name}_low"], line[f"{name}_high"]] == pytest.approx(
            [value, 0.9 * value, 1.1 * value]
        )
    assert line["r_squared"] == pytest.approx(1)
    assert line["off_percent"] == pytest.approx(0, abs=1e-6)
    assert line["even_rank"] == pytest.approx(25)
    assert line["pays_below_rank"] == pytest.approx(425)
    slope = sum(r * (50 + 2 * r) for r in RANKS) / sum(r * r for r in RANKS)
    assert line["eta_ms"] == pytest.approx(slope)
    assert line["eta_off_percent"] == pytest.approx(100 * (58 - 4 * slope) / 58)
    assert line["eta_r_squared"] < 1


def test_half_of_a_slope_makes_a_stage_late_and_twice_leaves_time(rows: pd.DataFrame) -> None:
    by_line = alignment(rows)[:4].set_index("line")
    paper = round(32 + 1e3 * SLACK / fits(rows)["eta_ms"][0])
    assert by_line["rank"].tolist() == [64, 96, 48, paper]
    assert by_line["late_ms"].tolist() == pytest.approx([2 * (rank - 64) for rank in (64, 96, 48, paper)])
    whole = 1e3 * (ALPHA + ETA * 64)
    assert by_line["late_percent"].tolist() == pytest.approx((100 * by_line["late_ms"] / whole).tolist())
    assert error_share(SHAPES, paper) > error_share(SHAPES, 64) == pytest.approx(1)


def test_where_there_is_time_for_all_of_it_nothing_is_compressed(rows: pd.DataFrame) -> None:
    rows.loc[rows["rank"] == 0, "seconds"] = 0.17
    by_line = alignment(rows)[:4].set_index("line")
    assert pd.isna(by_line["rank"]["right"])
    assert by_line["late_ms"]["right"] == pytest.approx(170 - (50 + 2 * 64))


def test_what_is_written_and_drawn_again(rows: pd.DataFrame, tmp_path: Path) -> None:
    table = tmp_path / "exchange.csv"
    rows.to_csv(table, index=False)
    text = write(table, SHAPES)
    texts = [table.with_name(f"{name}.md").read_text(encoding="utf-8") for name in ("fits", "alignment")]
    assert text == "\n".join(texts)
    assert len(_study(table.with_name("fits.csv"))[1]) == 2, "as the page reads it"
    assert text.count("| 20 ms apart |") == text.count("| even |") == 2
    assert "Links of one site: at its worst rank η r is off by" in text
    assert {path.name for path in tmp_path.iterdir()} == {
        "exchange.csv", "exchange.svg", "exchange.png", "fits.csv", "fits.md", "alignment.csv", "alignment.md"
    }  # fmt: skip
    drawn = table.with_suffix(".svg").read_bytes()
    assert redraw(tmp_path) == [table.with_suffix(".svg")]
    assert table.with_suffix(".svg").read_bytes() == drawn
