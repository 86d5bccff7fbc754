"""Tables and figures of the cluster model's forecasts: what is judged, what is shown, and that sweeps stay apart."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from edgc.report.collect import gather
from edgc.report.figures.cluster_model import (
    KEPT,
    SAVING_BY_LINK,
    SAVING_BY_RANK,
    WHO_WINS_WHERE,
    WITH_LOCAL,
    WITHOUT_LOCAL,
)
from edgc.report.frames import LATENCIES, frame
from edgc.report.reference_values import load_reference
from edgc.report.selection import FIGURES, SIMULATE, TABLES, names
from edgc.report.study import Study
from edgc.report.tables.cluster_forecasts import BANDWIDTH, CLAIMS, FORECAST, NOT_REPRODUCED, OUT_OF_REACH, REPRODUCED
from edgc.report.write import write_figure, write_table
from edgc.suite.config import load_experiment
from tests.fixtures.pictures import legend


def row(method: str, saved: float, latency: float, **more: object) -> dict[str, object]:
    """A forecast; `saved` and `latency` are percent less than dense fp32."""
    known = {
        "model": "gpt2-2.5b", "assumption": "fp32", "precision": "fp32", "calibration": "v100", "source": "assumed",
        "sweep": "none", "link_gbit": 32.0, "method": method, "title": method.title(), "amounts": "[8, 8]",
        "baseline": "dense", "verdict": "pays", "sentence": "pays: much", "iteration_s": 1.0, "floor_s": 0.8,
        "saving_percent": saved - 5, "low_percent": saved - 7, "high_percent": saved - 3,
        "tokens_per_s": 2e6, "utilisation_percent": 80.0, "needs_gbit_50": 0.0, "needs_gbit_80": 32.0 - saved,
        "needs_gbit_95": math.inf,
        "saving_fp32_percent": saved, "bound_percent": 20.0, "break_even_gbit": 100.0, "days": 10.0, "gpu_hours": 99.0,
    }  # fmt: skip
    latencies = {f"latency_{kind}_s": 0.1 for kind in LATENCIES} | {f"latency_{k}_percent": latency for k in LATENCIES}
    return known | latencies | more


def study(*rows: dict[str, object]) -> Study:
    experiment = load_experiment("paper-v100-simulated")
    frames = gather([], Path("nowhere"))
    return Study(experiment, replace(frames, forecasts=frame("forecasts", list(rows))), load_reference())


def test_a_forecast_reads_with_all_digits_of_its_ranks_and_true_signs() -> None:
    found = study(row("edgc", 16.0, 46.0, amounts="[1380.4, 1561]"), row("edgc_bits", -20.0, 10.0))
    shown = FORECAST.present(FORECAST.build(found))
    assert shown["Rank by stage"].tolist() == ["1380, 1561", "8"]
    assert shown["± 20 %"].tolist() == ["9.0 to 13.0 %", "−27.0 to −23.0 %"]


@pytest.fixture
def several() -> Study:
    return study(
        row("dense", 0.0, 0.0, amounts="[null, null]"),
        row("edgc", 16.13, 46.44, amounts="[64, null]"),
        row("edgc_r128", 12.0, 60.0),
        row("edgc_r128", 12.0, 60.0, assumption="slow compute", bound_percent=13.0),
        row("edgc_r128", 30.0, 90.0, sweep="link", link_gbit=1.0),
        row("edgc_r128", 2.0, 10.0, sweep="link", link_gbit=100.0),
        row("dense", 0.0, 0.0, sweep="link", amounts="[null, null]"),
        row("powersgd_r8", 10.0, 50.0, sweep="rank"),
        row("powersgd_r16", 9.0, 50.0, sweep="rank", assumption="slow compute"),
        row("dense_bf16", 1.0, 5.0, sweep="rank", amounts="[null, null]"),
    )


def verdicts(table: pd.DataFrame, claim: str) -> dict[tuple[str, str], set[str]]:
    own = table[table["claim"] == claim]
    return {key: set(rows["verdict"]) for key, rows in own.groupby(["method", "assumption"])}


def test_claims_are_judged_by_their_numbers_and_by_what_is_possible(several: Study) -> None:
    table = CLAIMS.build(several)
    assert "dense" not in set(table["method"]), "it compresses nothing"
    assert verdicts(table, "training-time") == {
        ("edgc", "fp32"): {REPRODUCED},
        ("edgc_r128", "fp32"): {NOT_REPRODUCED},
        ("edgc_r128", "slow compute"): {OUT_OF_REACH},
    }
    latency = verdicts(table, "communication-latency")
    assert latency["edgc", "fp32"] == {NOT_REPRODUCED}, "46.44 is less than the printed 46.45"
    assert latency["edgc_r128", "fp32"] == {REPRODUCED}
    assert len(table[(table["claim"] == "communication-latency") & (table["method"] == "edgc")]) == len(LATENCIES)


def test_the_paragraphs_tell_verdicts_and_bounds(several: Study) -> None:
    told = CLAIMS.words(CLAIMS.build(several))
    assert (
        "Training time is reduced by 16.13 % (gpt2-2.5b), in how many of 2 assumptions: Edgc: 1 (training time)" in told
    )
    assert "20.0 % (fp32), 13.0 % (slow compute)" in told
    assert "gpt2-2.5b, fp32: pays: much (assumed)." in FORECAST.words(FORECAST.build(several))


def test_sweeps_are_in_figures_and_not_in_the_table(several: Study) -> None:
    assert len(FORECAST.build(several)) == 4
    by_link = SAVING_BY_LINK.build(several)
    assert by_link["link_gbit"].tolist() == [1.0, 100.0]
    assert by_link["panel"].unique().tolist() == ["fp32 compute, v100 (assumed)"]
    by_rank = SAVING_BY_RANK.build(several)
    assert dict(zip(by_rank["assumption"], by_rank["rank"], strict=True)) == {"fp32": 8, "slow compute": 16}
    for figure, data in ((SAVING_BY_LINK, by_link), (SAVING_BY_RANK, by_rank)):
        assert legend(figure.draw(data))


def test_gathers_have_columns_where_parameters_are_sharded_only(several: Study, tmp_path: Path) -> None:
    training = several.experiment.training.model_copy(update={"shard": "optimizer"})
    sharded = study(row("dense", 0.0, 0.0, gather_s=0.25, gather_exposed_s=0.125))
    sharded = replace(sharded, experiment=sharded.experiment.model_copy(update={"training": training}))
    for name, each in {"whole": several, "sharded": sharded}.items():
        write_table("forecast", each, tmp_path / name)
        text = (tmp_path / name / "forecast.md").read_text()
        assert ("gather" in text.lower()) == (name == "sharded")
    assert FORECAST.present(FORECAST.build(sharded))["Gather, exposed (s)"].tolist() == ["0.125"]


def test_every_table_and_figure_is_written_and_says_that_nothing_was_measured(several: Study, tmp_path: Path) -> None:
    more = {"tables": ("claims", "bandwidth"), "figures": ("utilisation",)}
    several = replace(several, experiment=several.experiment.model_copy(update=more))
    for name in (*names(TABLES, SIMULATE), *more["tables"]):
        write_table(name, several, tmp_path)
        text = (tmp_path / f"{name}.md").read_text()
        assert "simulated with rates of v100 (assumed); nothing was measured" in text
    for name in (*names(FIGURES, SIMULATE), "utilisation"):
        write_figure(name, several, tmp_path)
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()


def test_the_method_that_needs_the_slowest_links_is_named(several: Study) -> None:
    table = BANDWIDTH.build(several)
    assert len(table) == 4
    assert BANDWIDTH.words(table).splitlines() == [
        "gpt2-2.5b, fp32: for 80 % utilisation Edgc needs 15.9 Gbit/s a node, Dense 32.0.",
        "gpt2-2.5b, slow compute: for 80 % utilisation Edgc_R128 needs 20.0 Gbit/s a node.",
    ]
    assert BANDWIDTH.present(table)["Gbit/s for 95 %"].unique().tolist() == ["inf"]


def test_in_every_field_the_fastest_method_wins_with_and_without_local_steps() -> None:
    seconds = {
        1.0: {"dense": 4.0, "powersgd_r64": 2.0, "topk": 3.0, "local_128": 1.0},
        10.0: {"dense": 1.0, "powersgd_r64": 1.2, "topk": 1.1, "local_128": 1.05},
    }
    points = [
        row(method, 0.0, 0.0, sweep="map", link_gbit=gbit, latency_ms=20.0, iteration_s=took)
        for gbit, methods in seconds.items()
        for method, took in methods.items()
    ]
    data = WHO_WINS_WHERE.build(study(*points, row("edgc", 50.0, 0.0, iteration_s=0.1)))
    won = {panel: rows["method"].tolist() for panel, rows in data.groupby("panel")}
    assert won == {
        WITHOUT_LOCAL: ["powersgd_r64", "dense"],
        WITH_LOCAL: ["local_128", "dense"],
    }
    measured = pd.DataFrame(
        {"model": "gpt2-nano", "method": ["dense", "topk", "powersgd_r64"], "status": "done", "pairs": 5}
        | {"gap": [0.0, 0.01, 0.01], "gap_low": 0.0, "gap_high": [0.0, 0.019, 0.021], "gap_sd": 0.01}
    )
    with_quality = WHO_WINS_WHERE.build(replace(study(*points), gaps=measured))
    kept = with_quality[with_quality["panel"] == KEPT]
    assert kept["method"].tolist() == ["topk", "dense"], "PowerSGD is faster, and may cost more than the margin"
    drawn = WHO_WINS_WHERE.draw(data[data["panel"] == WITH_LOCAL])
    assert set(legend(drawn)) == {"Local_128", "Dense"}


def test_without_a_map_nobody_wins(several: Study) -> None:
    assert WHO_WINS_WHERE.build(several).empty
