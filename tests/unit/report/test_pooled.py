"""Losses of seeds that ran on several models of CPU are one line; GPUs, traces and times stay apart."""

from dataclasses import replace

import pandas as pd
import pytest

from edgc.report.collect import pooled_frames
from edgc.report.figures.loss_gaps import GAP_BYTES
from edgc.report.frames import Frames, frame
from edgc.report.study import Study
from edgc.report.tables import accuracy
from edgc.report.tables.expenses import METHOD_COSTS
from edgc.report.tables.learning_rates import LEARNING_RATES
from edgc.report.tables.ranks import VARIANTS
from edgc.report.tables.times import LATENCY
from tests.fixtures.studies import run, step, tiny_experiment, tiny_reference


def on(model: str, kind: str = "cpu", trace: str | None = None, **of: object) -> dict:
    words = "processes on" if kind == "cpu" else "×"
    device = f"2 {words} {model}" + (f"; links: {trace}" if trace else "")
    made = run(**{"device": device} | of)
    return made | {
        "manifest.device.kind": kind,
        "manifest.device.model": model,
        "manifest.device.count": 2,
        "manifest.link.trace": trace,
    }


def frames(*runs: dict) -> Frames:
    empty = (frame(kind, []) for kind in ("evals", "decisions", "zero_shot"))
    return Frames(frame("runs", [*runs]), frame("steps", [step(r, 6, wire=0.1) for r in runs]), *empty)


def seeds(*models: str) -> Study:
    """Dense and PowerSGD, a seed on each of these models; PowerSGD loses 0.001 a seed, more or less."""
    losses = {"dense": 0.0, "powersgd": 0.001}
    runs = [
        on(model, method=m, seed=seed, validation_loss=4.0 + seed + gap * (1 + seed / 100))
        for m, gap in losses.items()
        for seed, model in enumerate(models, 1)
    ]
    return Study(tiny_experiment(losses), frames(*runs), tiny_reference([]))


def test_a_methods_seeds_are_one_line_of_losses_and_have_times_of_their_own():
    study = seeds("AMD", "Intel", "Intel")
    dense, low = (row for _, row in accuracy.build(study).iterrows())
    assert dense["device"] == low["device"] == "2 processes on AMD or Intel"
    assert (low["pairs"], low["verdict"]) == (3, "preserved")
    times = LATENCY.build(study)
    assert list(times["device"]) == ["2 processes on AMD", "2 processes on Intel"] * 2
    assert list(METHOD_COSTS.build(study)["pairs"]) == [3] * 4


def test_so_are_those_of_a_grid_of_rates():
    study = seeds("AMD", "Intel")
    rates = study.experiment.model_copy(update={"learning_rates": (1e-3,)})
    runs = study.frames.runs.assign(**{"spec.training.lr": 1e-3})
    table = LEARNING_RATES.build(replace(study, experiment=rates, frames=replace(study.frames, runs=runs)))
    assert list(table["seeds"]) == [2, 2]


def test_on_one_model_nothing_changes():
    study = seeds("AMD", "AMD")
    assert set(pooled_frames(study.frames).runs["device"]) == {"2 processes on AMD"}


@pytest.mark.parametrize(
    "apart", [(on("H100", "cuda"), on("A100", "cuda", seed=2)), (on("AMD"), on("AMD", trace="drop", seed=2))]
)
def test_gpus_and_traces_stay_apart(apart: tuple[dict, dict]):
    made = frames(*apart)
    pd.testing.assert_frame_equal(pooled_frames(made).runs, made.runs)


def test_every_frame_says_the_same():
    made = pooled_frames(seeds("AMD", "Intel").frames)
    assert set(made.steps["device"]) == set(made.runs["device"]) == {"2 processes on AMD or Intel"}


def test_gaps_against_bytes_and_variants_are_of_all_seeds():
    study = seeds("AMD", "Intel", "Intel")
    assert list(VARIANTS.build(study)["seeds"]) == [3, 3]
    assert list(GAP_BYTES.build(study)["n"]) == [3]
