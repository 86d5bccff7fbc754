"""Figures: what is plotted is right, a method always looks the same, and every figure draws whatever happened."""

import pandas as pd
import pytest

from edgc.report import pictures, style
from edgc.report.collect import gather
from edgc.report.figure import MOST_LOOKS, stacked, thinned
from edgc.report.figures.by_hardware import by_hardware
from edgc.report.figures.curves import LOSS_BYTES, LOSS_SECONDS, LOSS_STEP
from edgc.report.figures.fronts import PARETO_BYTES
from edgc.report.figures.gradient_entropy import ENTROPY_RANK
from edgc.report.figures.step_times import LATENCY, STEP_BREAKDOWN
from edgc.report.selection import FIGURES, NAMED, TABLES, TRAIN, figure_named, names
from edgc.report.study import WARMUP_STEPS, hardware
from edgc.report.write import write_figure, write_table
from edgc.suite.config import Method, available
from tests.fixtures.pictures import beyond, legend, values
from tests.fixtures.studies import of, run, step, study, tiny_experiment, tiny_spec
from tests.fixtures.synthetic_runs import write_runs


@pytest.fixture
def three_seeds():
    runs = [run("dense", seed) for seed in (1, 2, 3)]
    evals = [
        of(r, step=10, seconds=s, wire_bytes=100, loss=loss)
        for r, s, loss in zip(runs, (1, 2, 3), (4, 5, 9), strict=True)
    ]
    return runs, evals


def test_curves_are_means_and_ranges_over_seeds(three_seeds):
    runs, evals = three_seeds
    row = LOSS_SECONDS.build(study(runs, evals=evals)).iloc[0]
    assert (row["x"], row["loss"], row["low"], row["high"], row["n"]) == (2, 6, 4, 9, 3)
    assert LOSS_STEP.build(study(runs, evals=evals)).iloc[0]["x"] == 10
    assert LOSS_BYTES.build(study(runs, evals=evals)).iloc[0]["x"] == 100


def test_curves_never_mix_hardware_and_name_it_where_there_are_several():
    runs = [run("dense", seed, device=device) for seed, device in ((1, "2 × CPU"), (2, "2 × H100"))]
    evals = [of(r, step=10, seconds=s, wire_bytes=100, loss=s) for r, s in zip(runs, (4, 6), strict=True)]
    data = LOSS_SECONDS.build(study(runs, evals=evals))
    assert dict(zip(data["device"], data["loss"], strict=True)) == {"2 × CPU": 4, "2 × H100": 6}
    drawn = LOSS_SECONDS.draw(data)
    assert legend(drawn) == ["Dense, 2 × CPU", "Dense, 2 × H100"]
    assert len(set(pictures._looks([drawn]).values())) == 2, "and tells them apart"


def test_a_legend_and_panels_name_only_what_tells_hardware_apart():
    runs = [run("dense", seed, device=f"4 × CPU; links: {trace}") for seed, trace in ((1, "drop"), (2, "wave"))]
    data = LOSS_SECONDS.build(study(runs, evals=[of(r, step=1, seconds=1, wire_bytes=1, loss=4) for r in runs]))
    assert legend(LOSS_SECONDS.draw(data)) == ["Dense, links: drop", "Dense, links: wave"]
    assert list(by_hardware(data)) == ["m, links: drop", "m, links: wave"]
    assert hardware(data) == "4 × CPU; links: drop; links: wave"


@pytest.mark.parametrize("own", [LOSS_STEP, LOSS_SECONDS, LOSS_BYTES])
def test_runs_that_all_diverged_before_an_evaluation_are_drawn(own):
    bad = run("topk", status="diverged")
    data = own.build(study([bad], steps=[step(bad, 1) | {"loss": 6.0}, step(bad, 2) | {"loss": None}]))
    assert [(row.diverged, row.loss) for row in data.itertuples()] == [(True, 6.0)]
    assert not beyond(pictures.picture(own, data, ""))


def test_a_diverged_run_ends_in_a_marker():
    bad = run("topk", status="diverged")
    steps = [step(bad, s, wire=0.5) for s in range(1, 5)]
    evals = [of(bad, step=2, seconds=1.0, wire_bytes=200, loss=5.0)]
    for own, x in ((LOSS_STEP, 4), (LOSS_SECONDS, 2.0), (LOSS_BYTES, 400)):
        data = own.build(study([bad], steps, evals))
        end = data[data["diverged"]].iloc[0]
        assert (end["x"], end["loss"]) == (x, 5.0)
        assert len(data) == 2


def test_breakdown_adds_up_to_the_step():
    dense = run("dense")
    steps = [step(dense, s, forward=0.3, observe=0.02, wire=0.1 + s / 1000) for s in range(50)]
    s = study([dense], steps)
    row = STEP_BREAKDOWN.build(s).iloc[0]
    middle = s.frames.steps[s.frames.steps["step"] > WARMUP_STEPS]["t_step"]
    assert sum(row[region] for region in style.REGIONS) == pytest.approx(middle.median())
    assert row["observe"] == pytest.approx(0.02)


def test_old_records_without_observation_are_still_drawn():
    old = [step(run("dense"), s, forward=0.3, wire=0.1) | {"t_observe": None} for s in (9, 10)]
    (view,) = STEP_BREAKDOWN.draw(STEP_BREAKDOWN.build(study([run("dense")], old)))
    assert sum(values(view, "ms", "bar")) == pytest.approx(400)


def test_entropy_and_rank_by_stage():
    edgc, loss, fixed = run("edgc"), run("edgc_loss"), run("powersgd")
    common = {"step": 10, "window": 1, "stage": 0}
    decisions = [of(r, step=0, window=0, stage=0, parameter="a") for r in (edgc, loss, fixed)]
    decisions += [of(edgc, **common, parameter="a", entropy=-2.0, rank=4, clamp=None)]
    decisions += [of(edgc, **common, parameter="b", entropy=-4.0, rank=8, clamp="r_max")]
    decisions += [of(loss, **common, parameter="a", entropy=None, rank=5, clamp=None)]
    data = ENTROPY_RANK.build(study([edgc, loss, fixed], decisions=decisions))
    assert set(data["method"]) == {"edgc", "edgc_loss"}, "a fixed rank is decided once"
    assert data.groupby("panel")["method"].nunique().eq(1).all(), "entropies of two estimators share no axis"
    assert data[(data["method"] == "edgc_loss") & (data["step"] == 10)]["rank"].item() == 5, "without any entropy"
    row = data[(data["method"] == "edgc") & (data["step"] == 10)].iloc[0]
    assert (row["entropy"], row["rank"], row["low_rank"], row["high_rank"], row["clamped"]) == (-3, 6, 4, 8, 0.5)


def test_latency_bars_are_the_tables_numbers():
    dense = run("dense")
    data = LATENCY.build(study([dense], [step(dense, 9, wire=0.5)]))
    assert set(data["seconds"]) == {0.5}
    assert data["definition"].is_unique


def test_every_shipped_method_looks_different():
    looks = {method: style.look(method) for method in available(Method)}
    assert len(set(looks.values())) == len(looks)


def test_an_unknown_methods_look_follows_from_its_name():
    assert style.look("mine") == style.look("mine") != style.look("yours")


METHODS = ("dense", "dense_bf16", "powersgd", "topk", "edgc", "edgc_no_feedback")


@pytest.mark.tier("test")
@pytest.mark.parametrize("what", ["done", pytest.param("diverged", marks=pytest.mark.tier("all")), "nothing"])
def test_every_figure_and_table_is_written_whatever_happened(what, tmp_path):
    specs = [tiny_spec(method) for method in METHODS]
    status = {"topk": "diverged", "powersgd": "failed"} if what == "diverged" else {}
    write_runs(specs, tmp_path / "runs", status=status, skip=METHODS if what == "nothing" else (), tasks=["piqa"])
    whole = study([run("dense")])
    experiment = tiny_experiment(METHODS, ["piqa"]).model_copy(
        update={"tables": names(TABLES, NAMED), "figures": names(FIGURES, NAMED)}
    )
    made = type(whole)(experiment, gather(specs, tmp_path / "runs"), whole.reference)
    for name in (*names(FIGURES, TRAIN), *names(FIGURES, NAMED)):
        if what != "done":  # drawn, but not rendered: that takes most of the time
            assert pictures.picture(figure_named(name), figure_named(name).build(made), "caption")["vconcat"]
            continue
        write_figure(name, made, tmp_path)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
        assert "model" in pd.read_csv(tmp_path / f"{name}.csv").columns
    for name in (*names(TABLES, TRAIN), *names(TABLES, NAMED)):
        write_table(name, made, tmp_path)
        text = (tmp_path / f"{name}.md").read_text()
        assert "Experiment tiny: m, n = " in text


def test_equal_data_give_equal_files(tmp_path):
    specs = [tiny_spec("dense")]
    write_runs(specs, tmp_path / "runs")
    whole = study([run("dense")])
    made = type(whole)(whole.experiment, gather(specs, tmp_path / "runs"), whole.reference)
    for out in ("a", "b"):
        write_figure("loss_step", made, tmp_path / out)
    for kind in ("svg", "png", "csv"):
        assert (tmp_path / f"a/loss_step.{kind}").read_bytes() == (tmp_path / f"b/loss_step.{kind}").read_bytes()


def test_times_of_each_kind_of_hardware_have_a_panel():
    runs = [run("dense"), run("edgc"), run("dense", seed=2, device="GPU")]
    steps = [step(r, s, wire=0.1) for r in runs for s in range(9, 12)]
    for own in (LATENCY, STEP_BREAKDOWN):
        data = own.build(study(runs, steps))
        titles = data.groupby(own.panel(data))["title"].unique().map(list).to_dict()
        assert titles == {"m, 2 × CPU": ["Dense", "Edgc"], "m, GPU": ["Dense"]}
        assert set(own.panel(own.build(study(runs[:2], steps)))) == {"m"}, "the caption names the only one"
        assert list(pictures.panels(own, data)) == list(titles)


def test_points_and_curves_use_one_colour_a_method():
    runs = [run(method, validation_loss=5.0, training_seconds=1.0) for method in ("dense", "edgc")]
    evals = [of(r, step=10, seconds=1, wire_bytes=100, loss=5) for r in runs]
    made = study(runs, [], evals)
    curves, points = (own.draw(own.build(made)) for own in (LOSS_STEP, PARETO_BYTES))
    assert pictures._looks([curves]) == pictures._looks([points])


@pytest.mark.parametrize("log", [False, True])
def test_of_many_looks_some_are_shown_from_the_first_to_the_last(log):
    many = pd.DataFrame({"step": [*range(1, 2001)] * 2})
    shown = thinned(many, log=log)["step"]
    assert 0.6 * MOST_LOOKS < shown.nunique() <= MOST_LOOKS
    assert {shown.min(), shown.max()} == {1, 2000}
    assert (shown.value_counts() == 2).all(), "all rows of a look, or none"
    assert shown.median() < 200 if log else shown.median() == pytest.approx(1000, rel=0.02)
    assert len(thinned(many.head(MOST_LOOKS), log=log)) == MOST_LOOKS, "few looks are all shown"


def test_a_line_without_rows_leaves_numbers_what_they_are():
    parts = [pd.DataFrame(columns=["step"]), pd.DataFrame({"step": [1.5]})]
    assert stacked(parts)["step"].dtype == float
    assert stacked(parts[:1]).columns.tolist() == ["step"]
