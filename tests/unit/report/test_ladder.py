"""Table `ladder` and its figures: one method at several sizes, steps and numbers of replicas, beside published gaps."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from edgc.report.at_scale import at_scale
from edgc.report.figures.gaps_by_regime import GAP_BY_SIZE, GAP_BY_STEPS, GAP_BY_TOKENS
from edgc.report.nearest import JUDGED
from edgc.report.regime import Regime
from edgc.report.study import Study, regimes
from edgc.report.tables import accuracy
from edgc.report.tables.rungs import LADDER
from edgc.suite.config import load_experiment
from tests.fixtures.pictures import legend
from tests.fixtures.studies import run, study

LOSSES = {"dense": (5.0, 5.02, 5.04), "topk": (5.3, 5.322, 5.338), "diloco": (5.6, 5.62, 5.64)}
SIZE = 400_000


def trained(less: float, seeds: int = 3) -> Study:
    """Some seeds of each method; `less`: by how much every gap is smaller."""
    runs = []
    for method, losses in LOSSES.items():
        for seed, loss in list(enumerate(losses, 1))[:seeds]:
            known = run("dense" if method == "diloco" else method, seed=seed)
            gained = less if method != "dense" else 0
            runs.append(known | {"run_id": f"{method}-{seed}", "method": method, "title": method.title()})
            runs[-1]["validation_loss"] = loss - gained
    return study(runs)


def regime(steps: int, batch: int = 1000, size: int = SIZE, many: int = 4) -> pd.DataFrame:
    """Rows as `regimes` gives them."""
    alike = {"model": "m", "shared_by": many, "lr": 2e-3}
    on = asdict(Regime(size, steps * batch / size, steps, batch))
    every = [alike | on | {"method": method} for method in ("dense", "topk")]
    return pd.DataFrame([*every, alike | on | {"method": "diloco", "replicas": many, "period": 30}])


@pytest.fixture
def ladder() -> Study:
    """This experiment has many steps; below it are few steps, about as many on a larger batch, and eight replicas."""
    rungs = [
        (accuracy.build(trained(0.0)), regime(600)),
        (accuracy.build(trained(0.1, seeds=1)), regime(550, batch=4000)),
        (accuracy.build(trained(0.2)), regime(6000, many=8)),
        (None, regime(6000)),
    ]
    return replace(trained(0.29), rungs=rungs)


def test_every_rung_has_its_gaps_and_regime(ladder: Study) -> None:
    table = LADDER.build(ladder).set_index(["method", "steps", "shared_by"])
    assert table.loc[("topk", 600, 4), "gap"] == pytest.approx(0.3)
    assert table.loc[("topk", 6000, 4), "gap"] == pytest.approx(0.01)
    assert table.loc[("diloco", 6000, 8), ["replicas", "period"]].tolist() == [8, 30]
    assert table["tokens_a_parameter"].round(2).tolist() == sorted(table["tokens_a_parameter"].round(2))
    shown = LADDER.present(table.reset_index()).set_index("Method")
    alone = "Gap, 400k, 5.5 tokens a parameter, 550 × 4000, 4 replicas"
    assert shown.loc["Topk", alone] == "+0.2000 at 0.002", "a single seed has no interval"


def test_it_says_whose_verdict_changes_and_what_the_law_says(ladder: Study) -> None:
    said = LADDER.words(LADDER.build(ladder)).splitlines()
    topk = next(line for line in said if line.startswith("Topk"))
    assert topk.index("worse at 400k, 1.5") < topk.index("worse at 400k, 15 tokens a parameter, 6000 × 1000, 8")
    assert "preserved at 400k, 15 tokens a parameter, 6000 × 1000, 4 replicas (+0.0100" in topk
    laws = {law.method: law for file in at_scale() for law in file.laws if law.replicas == 4 or law.method == "dense"}
    law = laws["diloco"].at(SIZE) - laws["dense"].at(SIZE)
    assert any("Diloco, M = 4, H = 30" in line and f"says {law:+.3f}" in line for line in said)


def test_it_says_what_replicas_add_beside_what_the_law_adds(ladder: Study) -> None:
    four = LADDER.build(ladder).dropna(subset=["law"]).iloc[0].to_dict()
    four |= {"gap_low": four["gap"] - 0.1, "gap_high": four["gap"] + 0.1, "pairs": 3, "gap_sd": 0.05}
    one = four | {"replicas": 1, "rung": "alone", "gap": four["gap"] - 0.25, "law": four["law"] - 0.125}
    said = LADDER.words(pd.DataFrame([four, one]))
    more = "+0.2500 (+0.1367, +0.3633)"  # Welch's: two means of three, each ± 0.05
    assert f"Diloco, {four['rung']}: {more} more than with one replica; by the law +0.125." in said.splitlines()
    assert "more than" not in LADDER.words(pd.DataFrame([four]))


def test_laws_are_those_of_the_studys_configs(ladder: Study, tmp_path: Path) -> None:
    assert LADDER.build(ladder)["law"].notna().any()
    assert LADDER.build(replace(ladder, configs=tmp_path))["law"].isna().all()


def paper(folder: Path, dense: Callable[[int], float], gap: Callable[[int], float]) -> Path:
    """A configs folder with one paper, whose laws are of what it prints of four sizes."""
    printed = {n: (dense(n), dense(n) + gap(n)) for n in (35_000_000, 90_000_000, 335_000_000, 1_300_000_000)}
    common = {"predicts": "loss", "size": -0.1, "smallest": 35_000_000, "largest": 1_300_000_000, "where": "Table 2"}
    said = {"method": "diloco", "words": "DiLoCo", "replicas": 4, "period": 30, "decimals": 9, "where": "Table 1"}
    own = {"method": "diloco", "factor": 20.5, "replicas": 4, "period": 30, "tokens_a_parameter": 20}
    plain = {
        "name": "a-paper", "title": "A paper", "source": "arXiv 1 v1", "kind": "paper", "setting": "said once",
        "metric": "evaluation loss",
        "gaps": [said | {"parameters": n, "dense": d, "value": v, "gap": v - d} for n, (d, v) in printed.items()],
        "laws": [common | {"method": "dense", "factor": 20}, common | own],
    }  # fmt: skip
    (folder / "reference/at-scale").mkdir(parents=True)
    (folder / "reference/at-scale/a-paper.yaml").write_text(yaml.safe_dump(plain))
    return folder


def test_a_law_says_how_sure_it_is(ladder: Study, tmp_path: Path) -> None:
    exact = paper(tmp_path / "exact", lambda n: 20 * n**-0.1, lambda n: 0.5 * n**-0.1)
    row = LADDER.build(replace(ladder, configs=exact)).dropna(subset=["law"]).iloc[0]
    assert row["law"] == pytest.approx(0.5 * SIZE**-0.1)
    assert row[["law_low", "law_high", "law_of_gaps"]].tolist() == pytest.approx([row["law"]] * 3, abs=1e-6)

    other = paper(tmp_path / "other", lambda n: 20 * n**-0.1, lambda n: 80 * n**-0.5)
    row = LADDER.build(replace(ladder, configs=other)).dropna(subset=["law"]).iloc[0]
    assert row["law_of_gaps"] == pytest.approx(80 * SIZE**-0.5)
    assert row["law_high"] - row["law_low"] > 0.01, "losses that do not follow the law leave it unsure"


def test_figures_show_ours_published_ones_and_the_law(ladder: Study) -> None:
    data = GAP_BY_SIZE.build(ladder)
    ours = data[data["kind"] == "ours"].set_index("method")
    assert ours["steps"].tolist() == [6000, 6000], "of a size the row of most tokens"
    assert ours.loc["diloco", "panel"] == "local steps"
    known = [gap for file in at_scale() if file.kind in JUDGED for gap in file.gaps]
    assert (data["kind"] == "published").sum() == sum(gap.controlled and gap.method in LOSSES for gap in known) > 10
    law = data[(data["kind"] == "law") & (data["parameters"] == SIZE)]
    assert len(law) > 0
    assert ((law["gap_low"] < law["gap"]) & (law["gap"] < law["gap_high"])).all()
    assert legend(GAP_BY_SIZE.draw(data[data["panel"] == "local steps"])) == ["Diloco"]


def test_of_a_size_most_steps_stand_for_it_where_tokens_are_about_as_many(ladder: Study) -> None:
    wide = accuracy.build(trained(0.0)), regime(1510, batch=4000)  # some more tokens than 6000 steps of 1000 have
    for seeds in (1, 3):
        own = replace(trained(0.29, seeds), rungs=[wide, *ladder.rungs])
        data = GAP_BY_SIZE.build(own)
        ours = data[data["kind"] == "ours"]
        assert ours["steps"].tolist() == [6000, 6000]
        assert ours["gap_low"].isna().tolist() == [seeds == 1] * 2, "an interval is never another row's"


def test_steps_and_tokens_are_told_apart(ladder: Study) -> None:
    steps, tokens = GAP_BY_STEPS.build(ladder), GAP_BY_TOKENS.build(ladder)
    assert steps.groupby("kind")["steps"].unique().map(sorted).to_dict() == {
        "another batch": [550],
        "ours": [600, 6000],
    }
    assert tokens["panel"].unique().tolist() == ["m, 550–600 steps"], "one length alone says nothing of tokens"
    assert legend(GAP_BY_STEPS.draw(steps)) == legend(GAP_BY_TOKENS.draw(tokens)) == ["Topk", "Diloco"]


def test_an_experiment_alone_has_its_own_rung() -> None:
    """Without others' tables; a run's regime is its spec's."""
    own = regimes(load_experiment("smoke").runs())
    assert own[["parameters", "lr"]].notna().all(axis=None)
    assert (own["shared_by"] == 2).all()
    assert LADDER.build(trained(0.0)).empty, "a study of no experiment's file has none"
