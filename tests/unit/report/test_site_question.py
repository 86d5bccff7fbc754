"""The question form, `edgc recommend` and `edgc compare` give the planner's answers and the measured gaps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.core.base.files import read_json
from edgc.report.gaps import INDEX, Gap, index_of, least_favourable, measured, published_gaps, write_index
from edgc.report.nearest import Known
from edgc.report.plan import fastest
from edgc.report.recommend import NUMBERS
from edgc.report.regime import Regime
from edgc.report.site import contents as reader
from edgc.report.site.contents import Kept, published
from edgc.report.site.form import FILE, form, grid, write
from edgc.suite.cluster.forecasts import Forecast, forecast
from edgc.suite.cluster.question import PAGE_METHODS, Question, chosen
from edgc.suite.config import load_experiment

ROOT = Path(__file__).parents[3]
SMALL = Question("gpt2-345m", "v100x32", 8, "10gbit", None, "fp32")
UNFIT = Question("gpt2-12.1b", "v100x32", 8, "10gbit", None, "fp32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published forecasts of two questions."""
    made = tmp_path_factory.mktemp("published")
    write(made, [SMALL, UNFIT])
    return made


def accuracy(folder: Path, name: str, **rows: tuple[float, float, float, int]) -> Kept:
    """A published table of losses: by method gap, low, high, pairs."""
    (folder / name / "tables").mkdir(parents=True)
    table = [
        {
            "model": "gpt2-nano", "method": method, "gap": gap, "gap_low": low, "gap_high": high, "pairs": pairs,
            "verdict": "worse" if low > 0.02 else "preserved" if high <= 0.02 else "open",
        }
        for method, (gap, low, high, pairs) in rows.items()
    ]  # fmt: skip
    pd.DataFrame(table).to_csv(folder / name / "tables/accuracy.csv", index=False)
    return Kept(name, folder / name, None)


def measured_gaps(kept: Iterable[Kept], asked: Regime | None = None) -> dict[str, Gap]:
    return least_favourable(measured(kept), asked=asked and {"diloco": asked, "int4": replace(asked, replicas=None)})


def printed(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.tier("test")
def test_the_form_has_what_the_planner_says(folder: Path) -> None:
    data = form(folder)["data"]  # type: ignore[index]
    point = data["points"]["gpt2-345m|v100x32|8|10gbit||fp32"]
    plan = json.loads(
        printed(*point["command"].split()[1:], "--json", *(w for m in PAGE_METHODS for w in ("--method", m)))
    )
    own = {each["method"]: each for each in plan["methods"]}
    for method, numbers in zip(data["methods"], point["rows"], strict=True):
        for name, number in zip(NUMBERS, numbers, strict=True):
            expected = own[method][name]  # of a link: null both where a method never pays and where it always does
            same = number in (None, "inf") if expected is None else number == pytest.approx(expected, rel=1e-3)
            assert same, (method, name, number, expected)
    assert {data["methods"][index] for index in point["candidates"]} == {m for m in own if own[m]["candidate"]}


def test_a_model_that_does_not_fit_has_a_reason_instead(folder: Path) -> None:
    point = form(folder)["data"]["points"]["gpt2-12.1b|v100x32|8|10gbit||fp32"]  # type: ignore[index]
    assert "does not fit" in point["note"]
    assert point["command"].startswith("edgc plan --model gpt2-12.1b")


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        (["recommend", "--model", "gpt2-345m", "--cluster", "h100x64", "--iterations", "500"], {"EDGC"}),  # a window
        (["plan", "--sites", "8", "--model", "gpt2-12.1b", "--micro-batch", "1"], {"DiLoCo"}),  # memory
    ],
)
def test_a_usual_method_that_cannot_run_is_left_out_and_told(asked: list[str], left: set[str]) -> None:
    asked = [*asked, "--precision", "bf16"]
    found = json.loads(printed(*asked, "--json"))
    assert left <= {why.partition(":")[0] for why in found["left_out"]}
    assert not left & {each["title"] for each in found["methods"]}
    assert "Left out: " in printed(*asked)
    refused = CliRunner().invoke(app, [*asked, "--method", "diloco", "--method", "edgc"])
    assert refused.exit_code == 2
    assert "error: method " in refused.output


def test_every_question_of_the_grid_was_published() -> None:
    table = pd.read_csv(ROOT / "results/published" / FILE)
    asked = {
        (m, c, n, k, None if pd.isna(ms) else ms, p) for m, c, n, k, ms, p in table.iloc[:, :6].itertuples(index=False)
    }
    assert asked == {(p.model, p.cluster, p.nodes, p.link, p.latency_ms, p.precision) for p in grid()}


def test_the_least_favourable_gap_counts_of_those_that_decide_and_one_of_few_seeds_does_not(tmp_path: Path) -> None:
    kept = [
        accuracy(tmp_path, "a", edgc=(0.01, 0.0, 0.02, 3), topk=(0.1, 0.0, 0.2, 2), int4=(0.0, -0.2, 0.2, 3)),
        accuracy(tmp_path, "b", edgc=(0.0, -0.1, 0.1, 4), int4=(0.0, -0.3, 0.3, 3)),
        accuracy(tmp_path, "c", edgc=(0.0, -0.01, 0.01, 3)),
    ]
    gaps = measured_gaps(kept)
    assert set(gaps) == {"edgc", "int4"}
    assert gaps["edgc"].experiment == "a", "b's interval is wider and says nothing, c's is more favourable"
    assert gaps["int4"].experiment == "b", "nothing decides"


def test_other_settings_than_the_methods_own_are_told_and_overlap_has_the_same_gap(tmp_path: Path) -> None:
    rows = {"diloco": (0.5, 0.4, 0.6, 3), "dense_bf16": (0.0, -0.01, 0.01, 3)}
    rows["demo"] = (0.4, 0.3, 0.5, 3)
    own = load_experiment("peers")
    assert own.overrides["diloco"]["method"] == {"synchronisation": {"every": 30}}
    gaps = measured_gaps([replace(accuracy(tmp_path, "peers", **rows), experiment=own)])
    assert gaps["diloco"].words == (
        "1.07M parameters, 0.57 tokens a parameter, 600 steps, M = 4, H = 30: +0.5000 (+0.4000 to +0.6000, n = 3; "
        "peers, with every 30)"
    )
    assert gaps["dense_bf16"].settings == ""
    assert gaps["demo"].words.endswith("peers; trained with demo, and dense with adamw)")
    assert gaps["diloco"].optimizer == ""
    assert gaps["dense_bf16_overlap"] == replace(gaps["dense_bf16"], method="dense_bf16_overlap")


def test_what_trains_with_muon_is_held_against_dense_muon_and_has_no_gap_without_it(tmp_path: Path) -> None:
    names = {"peers": ("muloco", "muloco_topk", "dion", "orth_dion"), "peers-2-replicas": ("muloco",)}
    better = {name: dict.fromkeys(methods, (-0.4, -0.5, -0.3, 3)) for name, methods in names.items()}
    peers, fewer = (
        replace(accuracy(tmp_path, name, **rows), experiment=load_experiment(name)) for name, rows in better.items()
    )
    credit = pd.DataFrame(
        [("muloco", 3, 0.2, 0.1, 0.3), ("muloco_topk", 3, 0.1, 0.0, 0.2), ("dion", 2, 0.3, 0.2, 0.4)],
        columns=["method", "pairs", "gap", "gap_low", "gap_high"],
    )
    credit.assign(model="gpt2-nano").to_csv(peers.folder / "tables/credit.csv", index=False)
    gaps = measured_gaps([peers, fewer])
    assert set(gaps) == {"muloco"}, "others' control is no dense training, has two seeds, or is missing"
    assert (gaps["muloco"].gap, gaps["muloco"].experiment) == (0.2, "peers")
    assert gaps["muloco"].words.endswith("n = 3; peers; trained with muon, gap to Dense (Muon))")


def test_local_steps_have_the_gap_of_the_nearest_number_of_replicas(tmp_path: Path) -> None:
    few, many = (
        {"diloco": (gap, gap - 0.1, gap + 0.1, 3), "int4": (0.0, -0.01, high, 3)}
        for gap, high in ((0.3, 0.02), (0.9, 0.01))
    )
    kept = [
        replace(accuracy(tmp_path, name, **rows), experiment=load_experiment(name))
        for name, rows in (("peers-2-replicas", few), ("peers-8-replicas", many))
    ]
    found = {many: measured_gaps(kept, many and Regime(replicas=many)) for many in (2, 64, None)}
    assert [gaps["diloco"].regime.replicas for gaps in found.values()] == [2, 8, 8]
    assert {gaps["int4"].experiment for gaps in found.values()} == {"peers-2-replicas"}, "the least favourable"


def test_a_gap_of_the_runs_that_did_not_diverge_does_not_count(tmp_path: Path) -> None:
    kept = accuracy(tmp_path, "a", edgc=(0.0, -0.01, 0.01, 3), topk=(0.0, -0.01, 0.01, 3))
    path = kept.folder / "tables/accuracy.csv"
    pd.read_csv(path).assign(verdict=["preserved", "diverged (2 of 5)"]).to_csv(path, index=False)
    assert set(measured_gaps([kept])) == {"edgc"}


def test_what_an_interrupted_publish_leaves_is_not_published(tmp_path: Path) -> None:
    accuracy(tmp_path, ".partial-quality", edgc=(0.0, -0.01, 0.01, 3))
    accuracy(tmp_path, "searches/.partial-mine", edgc=(0.0, -0.01, 0.01, 3))
    accuracy(tmp_path, "a", topk=(0.0, -0.01, 0.01, 3))
    assert [kept.name for kept in published(tmp_path)] == ["a"]
    assert set(published_gaps(tmp_path)) == {"topk"}


def test_a_gap_to_another_baseline_than_dense_does_not_count(tmp_path: Path) -> None:
    own = load_experiment("peers-muon")
    assert own.judgement.baseline == "muon"
    assert not measured_gaps([replace(accuracy(tmp_path, "peers-muon", muloco=(0.2, 0.1, 0.3, 3)), experiment=own)])


def test_the_fastest_that_keeps_the_loss_is_chosen(tmp_path: Path) -> None:
    gaps = measured_gaps([accuracy(tmp_path, "a", edgc=(0.01, 0.0, 0.02, 3), topk=(0.1, 0.0, 0.2, 3))])
    asked = forecast(SMALL.scenario(), chosen(["edgc", "topk", "powersgd"]))
    seconds = {"dense": 1.0, "edgc": 4.0, "topk": 3.0, "powersgd": 2.0}
    rows = [replace(asked.by_name(name), iteration_s=s, candidate=name != "dense") for name, s in seconds.items()]
    every = replace(asked, methods=tuple(rows))
    assert every.candidate == every.by_name("powersgd")

    known = {name: Known(Regime(), gaps.get(name)) for name in seconds}

    def kept(margin: float) -> Forecast | None:
        return fastest(every, known, margin)

    assert kept(0.001) is None
    assert [kept(0.02), kept(0.2)] == [every.by_name("edgc"), every.by_name("topk")]


@pytest.mark.tier("test")
def test_recommend_fits_a_terminal_and_says_what_its_json_says() -> None:
    asked = ["recommend", "--model", "gpt2-345m", "--cluster", "v100x32", "--link", "1gbit", "--margin", "0.02"]
    asked += ["--method", "powersgd", "--method", "int8", "--results", str(ROOT / "results")]
    text, plain = printed(*asked), json.loads(printed(*asked, "--json"))
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 30
    assert plain["keeps_the_loss"] == "int8", "at the rank of a model so wide, PowerSGD loses more"
    assert plain["fastest"] == "powersgd", "ranks of a node share its link in an all-to-all"
    flat = " ".join(text.split())
    for each in plain["methods"]:
        if each["method"] in (plain["keeps_the_loss"], plain["fastest"]) and each["low_percent"] > 0:
            assert f"{each['title']}: {each['verdict']}; saves {each['low_percent']:.1f} to" in flat


@pytest.mark.tier("test")
def test_between_sites_what_plan_weighs_is_recommended_from() -> None:
    far = ["--sites", "8", "--link", "1gbit", "--latency", "20", "--results", str(ROOT / "results")]
    planned = json.loads(printed("plan", *far, "--json"))
    found = json.loads(printed("recommend", *far, "--margin", "0.02", "--json"))
    seconds = {each["method"]: each["iteration_s"] for each in planned["methods"]}
    assert {each["method"]: each["iteration_s"] for each in found["methods"]} == seconds
    kept = [each["method"] for each in found["methods"] if each.get("within_margin") == "yes"]
    assert found["keeps_the_loss"] == min(kept, key=seconds.__getitem__)


@pytest.mark.parametrize(
    ("one", "other", "experiment"),
    [
        ("edgc", "powersgd_r32", "links-nano"),
        ("edgc", "topk_warm", "quality"),
        ("dense", "int4", "peers-h100-simulated"),
    ],
)
def test_compare_fits_a_terminal_and_says_what_its_json_says(
    one: str, other: str, experiment: str, tmp_path: Path
) -> None:
    (tmp_path / "published").symlink_to(ROOT / "results/published")
    asked = ["compare", one, other, "-e", experiment, "--results", str(tmp_path)]
    text, plain = printed(*asked), json.loads(printed(*asked, "--json"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert plain["rows"]
    assert "".join(plain["sentence"].split()) in "".join(text.split())


@pytest.mark.parametrize(
    ("other", "experiment", "wanted"),
    [
        ("powersgd_r32", "links-ddp", ["Step, 200 Mbit/s (gpt2-nano)", "Step, 200 Mbit/s (gpt2-micro)"]),
        ("int4", "peers-every-step", ["Step (median) (4 processes on Intel(R) Xeon(R) Processor)"]),
    ],
)
def test_compare_tells_models_and_hardware_apart(other: str, experiment: str, wanted: list[str]) -> None:
    asked = ["compare", "dense", other, "-e", experiment, "--results", str(ROOT / "results"), "--json"]
    found = json.loads(printed(*asked))["rows"]
    assert [row["what"] for row in found if row["what"].startswith(wanted[0].split(" (")[0])] == wanted


def test_compare_has_the_noise_of_table_links() -> None:
    table = pd.read_csv(ROOT / "results/published/links-local/tables/links.csv", dtype={"rate": str})
    rows = table[table["rate"] == "20mbit"].set_index("method")
    fastest, other = rows.index[rows["verdict"] == "fastest dense"][0], "delayed"
    asked = ["compare", fastest, other, "-e", "links-local", "--results", str(ROOT / "results"), "--json"]
    step = next(row for row in json.loads(printed(*asked))["rows"] if row["what"] == "Step, 20 Mbit/s")
    assert f"{rows.loc[other, 'noise_points']:.1f}" in step["difference"]


def test_compare_refuses_a_method_that_is_not_there() -> None:
    done = CliRunner().invoke(app, ["compare", "edgc", "nothing", "-e", "quality", "--results", str(ROOT / "results")])
    assert done.exit_code == 2
    assert "method 'nothing': experiment quality has dense" in done.output


def test_the_index_of_gaps_is_what_the_published_tables_say() -> None:
    """Else run `edgc site gaps`: a table was published, or a file in configs/ says something else of a method."""
    assert read_json(ROOT / "results/published" / INDEX) == index_of(ROOT / "results/published")


def test_gaps_from_the_index_are_those_of_the_tables(tmp_path: Path) -> None:
    """With a table that the index does not know, and without one that it knows."""
    for name in ("peers", "peers-8-replicas", "quality"):
        shutil.copytree(ROOT / "results/published" / name / "tables", tmp_path / name / "tables")
    write_index(tmp_path)
    assert published_gaps(tmp_path) == measured_gaps(published(tmp_path))
    for path, high in (("peers/tables/credit.csv", 0.4), ("peers/tables/accuracy.csv", 0.5)):
        pd.read_csv(tmp_path / path).assign(gap_high=high).to_csv(tmp_path / path, index=False)
        assert published_gaps(tmp_path) == measured_gaps(published(tmp_path)), path
    shutil.rmtree(tmp_path / "quality")
    accuracy(tmp_path, "young", edgc=(0.6, 0.59, 0.61, 3))
    found = published_gaps(tmp_path)
    assert found == measured_gaps(published(tmp_path))
    highs = {(gap.high, bool(gap.baseline)) for gap in found.values() if gap.experiment == "peers"}
    assert highs == {(0.5, False), (0.4, True)}
    assert found["edgc"].experiment == "young"


def test_from_an_index_no_experiment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "one", None)
    assert published_gaps(ROOT / "results/published")
