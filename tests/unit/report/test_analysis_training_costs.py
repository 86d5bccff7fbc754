"""Learning rates, what it takes to reach a loss, and which methods nothing beats: from records made by hand."""

import math
from pathlib import Path

import pandas as pd
import pytest

from edgc.report.figures.curves import LOSS_STEP
from edgc.report.figures.fronts import PARETO_BYTES
from edgc.report.study import Study
from edgc.report.style import CROWDED
from edgc.report.tables import learning_rates
from edgc.report.tables.times import TIME_TO_LOSS
from tests.fixtures.pictures import legend
from tests.fixtures.sessions import row_of
from tests.fixtures.studies import of, run, step, study

# learning rates


def trained(method: str, lr: float, *losses: float, status: str = "done") -> list[dict]:
    named = {"method": f"{method}_lr{lr:g}", "title": f"{method.title()}, lr {lr:g}", "spec.training.lr": lr}
    return [
        run(method, seed, status) | named | {"run_id": f"{method}-{lr}-{seed}", "validation_loss": loss}
        for seed, loss in enumerate(losses, 1)
    ]


def grid(*runs: list[dict]) -> pd.DataFrame:
    whole = study([run for own in runs for run in own])
    experiment = whole.experiment.model_copy(update={"learning_rates": (1e-3, 2e-3, 4e-3)})
    return learning_rates.build(Study(experiment, whole.frames, whole.reference))


def test_the_best_rate_is_told_with_the_methods_own_name():
    table = grid(trained("dense", 1e-3, 4.2, 4.4), trained("dense", 2e-3, 4.0, 4.2), trained("dense", 4e-3, 4.5, 4.6))
    assert set(table["method"]) == {"dense"}
    assert set(table["title"]) == {"Dense"}
    best = table[table["best"]].iloc[0]
    assert (best["lr"], best["loss"], best["seeds"], best["edge"]) == (2e-3, pytest.approx(4.1), 2, None)
    assert learning_rates.paragraph(table) == "Dense is best at 0.002 (4.1000 nats, n = 2), inside the grid."
    shown = learning_rates.LEARNING_RATES.present(table).iloc[0]
    assert (shown["lr 0.002"], shown["Best"], shown["At an edge"]) == ("4.1000 ± 0.1414", "0.002", "no")


def test_a_best_rate_at_an_edge_says_so():
    table = grid(trained("dense", 1e-3, 4.2), trained("dense", 2e-3, 4.0))
    assert table.loc[table["best"], "edge"].item() == "highest"
    assert "the highest rate that was run, so a better one may lie outside" in learning_rates.paragraph(table)
    assert grid(trained("dense", 1e-3, 4.2))["edge"].item() == "only"


def test_a_rate_at_which_a_seed_diverged_is_never_best_but_closes_the_grid():
    ended = trained("dense", 4e-3, 3.0) + trained("dense", 4e-3, math.nan, math.nan, status="diverged")[1:]
    table = grid(trained("dense", 1e-3, 4.2, 4.2), trained("dense", 2e-3, 4.0, 4.0), ended)
    assert table.loc[table["best"], ["lr", "edge"]].to_numpy().tolist() == [[2e-3, None]]
    assert learning_rates.LEARNING_RATES.present(table)["lr 0.004"].item() == "1 done, 1 diverged"
    nothing = grid(trained("dense", 1e-3, math.nan, status="diverged"))
    assert learning_rates.paragraph(nothing) == "Dense has no best rate: at none did every run finish."


def test_a_published_table_says_the_same_as_the_one_it_was_written_from(tmp_path: Path):
    """The page reads tables from CSV, where no edge is NaN."""
    inside = [trained("dense", 1e-3, 4.2), trained("dense", 2e-3, 4.0), trained("dense", 4e-3, 4.5)]
    table = grid(*inside, trained("topk", 1e-3, 4.0), trained("topk", 2e-3, 4.2))
    table.to_csv(tmp_path / "table.csv", index=False)
    read = pd.read_csv(tmp_path / "table.csv")
    said = learning_rates.paragraph(table).splitlines()
    assert said[0] == "1 of 2 methods are best inside the grid."
    assert learning_rates.paragraph(read).splitlines() == said
    assert learning_rates.LEARNING_RATES.present(read)["At an edge"].tolist() == ["no", "lowest"]


def test_an_experiment_without_learning_rates_has_an_empty_table():
    table = learning_rates.build(study([run("dense")]))
    assert learning_rates.LEARNING_RATES.present(table).empty
    assert learning_rates.paragraph(table) == "The experiment has no learning rates."


# time to loss


def evaluated(method: str, *by_seed: float, status: str = "done", loss: float = 4.0) -> tuple[list[dict], list[dict]]:
    """A run a seed that is at 5 nats after a second and at `loss` after so many; 10 steps and 100 bytes a second."""
    runs = [run(method, seed, status, validation_loss=loss) for seed in range(1, len(by_seed) + 1)]
    evals = [of(r, step=10, seconds=1, wire_bytes=100, loss=5.0) for r in runs]
    evals += [of(r, step=10 * s, seconds=s, wire_bytes=100 * s, loss=loss) for r, s in zip(runs, by_seed, strict=True)]
    return runs, evals


def to_loss(*methods: tuple[list[dict], list[dict]]) -> pd.DataFrame:
    runs, evals = ([row for own in part for row in own] for part in zip(*methods, strict=True))
    return TIME_TO_LOSS.build(study(runs, evals=evals))


DENSE = evaluated("dense", 20, 40, 60)


def test_seconds_steps_and_bytes_to_the_target_are_medians_with_their_range():
    row = row_of(to_loss(DENSE, evaluated("edgc", 10, 30, 60)), "edgc")
    assert (row["seconds"], row["seconds_low"], row["seconds_high"]) == (30, 10, 60)
    assert (row["step"], row["wire_bytes"]) == (300, 3000)
    assert (row["reached"], row["seeds"]) == (3, 3)
    assert row["seconds_per_baseline"] == pytest.approx(0.75), "of 0.5, 0.75 and 1, by seed"


def test_the_fastest_dense_method_is_the_second_reference():
    table = to_loss(DENSE, evaluated("dense_bf16", 10, 20, 30), evaluated("edgc", 15, 30, 45))
    row = row_of(table, "edgc")
    assert (row["dense"], row["seconds_per_dense"]) == ("Dense_Bf16", pytest.approx(1.5))
    text = TIME_TO_LOSS.words(table)
    assert text.startswith(
        "Dense_Bf16 is first, after 20.0 s of training: 0.50 times the time of Dense (3 of 3 seeds)."
    )
    assert "Every method reached the target with every seed." in text


def test_a_missed_target_is_told():
    table = to_loss(DENSE, evaluated("edgc", 10, 10, 10, loss=4.03), evaluated("topk", 1, 1, 1, status="diverged"))
    assert row_of(table, "edgc")["seconds"] == math.inf
    assert row_of(table, "edgc")["seconds_per_baseline"] == math.inf
    text = TIME_TO_LOSS.words(table)
    assert "Dense is first, after 40.0 s" in text
    assert "Seeds that missed the target: Edgc (3 of 3), Topk (3 of 3)." in text
    assert TIME_TO_LOSS.present(table)["Seconds"].tolist()[1] == "inf (inf–inf)"


def test_without_a_finished_baseline_there_is_no_target():
    table = to_loss(evaluated("dense", 20, status="failed"), evaluated("edgc", 10))
    assert table["seconds"].isna().all()
    assert TIME_TO_LOSS.words(table) == "No method has a target: the baseline did not finish."


# pareto


def test_the_front_is_what_nothing_beats_in_both():
    """Of losses that were paired: EDGC's lowest is of a seed at which dense's is low, too."""
    points = {"dense": (4.0, 40), "powersgd": (4.1, 10), "edgc": (4.2, 20), "topk": (4.1, 10)}
    runs = [run(m, validation_loss=loss) for m, (loss, _) in points.items()]
    runs += [run(m, seed=2, validation_loss=loss - 2) for m, (loss, _) in points.items() if m in ("dense", "edgc")]
    made = study(runs, [step(r, 1, payload=points[r["method"]][1]) for r in runs])
    data = PARETO_BYTES.build(made)
    assert set(data.loc[data["front"], "method"]) == {"dense", "powersgd", "topk"}
    assert data.groupby("method")["paired"].mean().to_dict() == pytest.approx(
        {"dense": 3.0, "powersgd": 3.1, "edgc": 3.2, "topk": 3.1}
    )
    assert set(legend(PARETO_BYTES.draw(data))) == set(data["title"])


def test_of_many_methods_those_on_the_front_dense_and_edgc_are_named():
    point = {"model": "m", "device": "CPU", "seed": 1, "paired": 4.0, "wire_bytes": 1.0}
    rows = [point | {"method": m, "title": t, "front": False} for m, t in (("dense", "Dense"), ("edgc", "EDGC"))]
    rows += [point | {"method": f"m{i:02}", "title": f"M{i}", "front": i < 2} for i in range(CROWDED - 1)]
    named = {}
    for count in (CROWDED, CROWDED + 1):
        named[count] = legend(PARETO_BYTES.draw(pd.DataFrame(rows[:count])))
    assert list(map(len, named.values())) == [CROWDED, 4]
    assert named[CROWDED + 1] == ["Dense", "EDGC", "M0", "M1"]


def test_of_many_methods_only_those_of_lowest_loss_have_a_named_line():
    """The last one ends lowest, though it began highest; one diverged."""
    ends = {f"m{i:02}": 4.0 + i for i in range(CROWDED + 1)} | {f"m{CROWDED + 1:02}": 3.0}
    common = {"model": "m", "device": "CPU", "n": 1, "diverged": False}
    rows = [
        common | {"method": m, "title": m, "step": x, "x": x, "loss": loss, "low": loss, "high": loss}
        for m, end in ends.items()
        for x, loss in ((1, 20 - end), (2, end))
    ]
    rows[1]["diverged"] = True
    assert legend(LOSS_STEP.draw(pd.DataFrame(rows))) == [*list(ends)[1:CROWDED], f"m{CROWDED + 1:02}"]


def test_runs_that_ended_badly_have_no_point():
    runs = [run("dense", validation_loss=4.0, training_seconds=1), run("topk", status="diverged", validation_loss=3.0)]
    assert set(PARETO_BYTES.build(study(runs, [step(runs[0], 1)]))["method"]) == {"dense"}
