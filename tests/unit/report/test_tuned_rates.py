"""Experiments about quality train every method at the learning rate that was published as its best."""

from pathlib import Path

import pandas as pd
import pytest

from edgc.suite.config import Experiment, load, load_experiment

TABLE = Path("results/published/quality-rates/tables/learning_rates.csv")
SAME_RATE = ("_both", "_int8", "_overlap", "_bf16")  # what only changes when bytes are sent, or in which precision


@pytest.mark.parametrize("name", ["quality", "time-to-loss"])
def test_every_method_has_its_best_learning_rate(name: str) -> None:
    table = pd.read_csv(TABLE)
    best = table[table["best"]].set_index("method")["lr"]
    tuned = load(Experiment, "quality-rates").training
    for spec in load_experiment(name).runs():
        assert spec.training.lr == best[tuned_as(spec.method.name)], spec.method.name
        assert spec.training.global_batch == tuned.global_batch
        assert spec.training.iterations == tuned.iterations


def tuned_as(method: str) -> str:
    """The method of the grid whose rate it has."""
    method = method.removeprefix("fsdp_")
    for suffix in SAME_RATE:
        method = method.removesuffix(suffix)
    return method


def best_of_peers() -> pd.Series:
    """The best of all grids that were published: a method may stand in several, with other rates."""
    tables = [pd.read_csv(path) for path in sorted(TABLE.parents[2].glob("peers-rates-*/tables/learning_rates.csv"))]
    grids = pd.concat(tables, ignore_index=True)
    return grids.loc[grids.groupby("method")["loss"].idxmin()].set_index("method")["lr"]


@pytest.mark.parametrize("name", ["peers-every-step", "peers", "sharded-quality"])
def test_so_has_every_peer_also_in_shards(name: str) -> None:
    best = best_of_peers()
    for spec in load_experiment(name).runs():
        assert spec.training.lr == best[tuned_as(spec.method.name)], spec.method.name


def test_so_has_what_comes_late() -> None:
    """Dense and rank 8 alike; one step late without a correction was tuned among the peers."""
    grids = [pd.read_csv(TABLE), pd.read_csv(TABLE.parents[2] / "delay-rates/tables/learning_rates.csv")]
    best = pd.concat([grid[grid["best"]].set_index("method")["lr"] for grid in grids])
    best["dense_late_1"] = best_of_peers()["delayed"]
    for spec in load_experiment("delay-sweep").runs():
        assert spec.training.lr == best[spec.method.name.replace("r8_late", "dense_late")], spec.method.name
