"""Table `replicas`: the same methods at several degrees of data parallelism, from published tables."""

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from edgc.core.base.errors import UserError
from edgc.report.figures.loss_gaps import GAP_REPLICAS
from edgc.report.study import Study
from edgc.report.tables import accuracy
from edgc.report.tables.comparisons import REPLICAS
from edgc.suite.config import CONFIGS, load_experiment
from tests.fixtures.pictures import legend
from tests.fixtures.studies import run, study

LOSSES = {"dense": (5.0, 5.02, 5.04), "topk": (5.1, 5.13, 5.13), "edgc": (5.01, 5.02, 5.06)}


def trained(more: float) -> Study:
    """Three seeds of each method, and Top-K worse by `more`."""
    runs = []
    for method, losses in LOSSES.items():
        for seed, loss in enumerate(losses, 1):
            runs.append(run(method, seed=seed, validation_loss=loss + (more if method == "topk" else 0)))
    return study(runs)


def of(replicas: int) -> pd.DataFrame:
    """The regimes of a rung, as far as they are read."""
    return pd.DataFrame({"shared_by": [replicas]})


def rung(more: float, replicas: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Another experiment's table, and the regimes of its rows."""
    return accuracy.build(trained(more)), of(replicas)


@pytest.fixture
def sweep() -> pd.DataFrame:
    """With one, two (this experiment's) and eight replicas."""
    here = trained(0.1)
    degree = here.experiment.parallel.data
    return REPLICAS.build(replace(here, rungs=[rung(1.0, degree * 4), rung(0.0, degree // 2), (None, of(degree))]))


def test_every_gap_is_to_the_baseline_with_as_many_replicas(sweep: pd.DataFrame) -> None:
    gaps = sweep.pivot(index="method", columns="replicas", values="gap")
    assert gaps.loc["topk"].tolist() == pytest.approx([0.1, 0.2, 1.1])
    assert gaps.loc["edgc"].tolist() == pytest.approx([0.01, 0.01, 0.01])


def test_it_says_which_method_more_replicas_hurt(sweep: pd.DataFrame) -> None:
    """By Welch's test of the gaps, as scipy has it."""
    shown = REPLICAS.present(sweep).set_index("Method")["More replicas"]
    assert [each.split(": ")[-1] for each in shown] == ["–", "hurt", "not told apart"]
    few, many = ([0.1 + more, 0.11 + more, 0.09 + more] for more in (0.0, 1.0))
    interval = stats.ttest_ind(many, few, equal_var=False).confidence_interval()
    assert shown["Topk"] == f"+1.0000 (+{interval.low:.4f}, +{interval.high:.4f}): hurt"
    first, second = REPLICAS.words(sweep).splitlines()
    assert first == "More replicas hurt Topk (+1.0000 nats from 1 to 8)."
    assert second == "Few and many replicas are not told apart in Edgc (+0.0000 nats from 1 to 8)."
    turned = sweep.assign(replicas=9 - sweep["replicas"])
    assert REPLICAS.present(turned)["More replicas"].tolist()[1].endswith("help")
    assert REPLICAS.words(turned).startswith("More replicas help Topk (−1.0000 nats from 1 to 8).")


def test_a_method_of_one_other_degree_alone_is_left_out() -> None:
    here = trained(0.1)
    other, regimes = rung(0.0, 8)
    other["method"] = other["method"].replace("edgc", "int4")
    table = REPLICAS.build(replace(here, rungs=[(other, regimes)]))
    assert set(table["method"]) == {"dense", "topk", "edgc"}


def test_one_degree_alone_is_said() -> None:
    assert REPLICAS.words(REPLICAS.build(trained(0))).startswith("Only 2 replicas")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (["gpu2", "smok"], r"rungs_from 'smok': allowed are"),
        (
            ["gpu2", "smoke"],
            r"rungs_from 'smoke': parallel\.data is 2, as in gpu2; name experiments",
        ),
        (["quality"], r"rungs_from 'quality': parallel\.data is 4, as in quality-rates"),
    ],
)
def test_what_makes_no_sweep_is_refused(named: list[str], told: str, tmp_path: Path) -> None:
    shutil.copytree(CONFIGS, configs := tmp_path / "configs")
    file = configs / "experiments/rates/quality-rates.yaml"
    own = [line for line in file.read_text().splitlines() if not line.startswith(("judgement:", "tables:"))]
    own += [f"judgement: {{baseline: dense_lr0.001, rungs_from: {named}}}", "tables: [replicas]"]
    file.write_text("\n".join(own))
    with pytest.raises(UserError, match=told):
        load_experiment("quality-rates", configs)


def test_the_figure_has_a_line_for_every_method_but_the_baseline() -> None:
    here = trained(0.1)
    data = GAP_REPLICAS.build(replace(here, rungs=[rung(1.0, 8)]))
    gaps = data.pivot(index="method", columns="replicas", values="gap")
    assert gaps.loc["topk"].tolist() == pytest.approx([0.2, 1.1])
    drawn = GAP_REPLICAS.draw(data)
    assert legend(drawn) == ["Topk", "Edgc"]
    assert drawn[0].layers[-1].encoding["x"]["axis"]["values"] == [2, 8]
    assert GAP_REPLICAS.build(here).empty, "of one degree"
