"""What is made of a probe's records: rows, window means, sampling's cost and error, and verdicts on the premise."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base import files
from edgc.report.collect import gather
from edgc.report.frames import Frames
from edgc.report.low_rank import movement
from edgc.report.study import Study, lines
from edgc.report.tables import normality, observations, samples
from edgc.report.tables.observations import CONTRADICTS, MEASURES, PARTLY, SUPPORTS, conclusion
from edgc.report.verdicts import cut_off
from edgc.report.window_means import EntropyTrajectory, followed, trajectories, window_means
from edgc.report.write import write_figure, write_table
from edgc.suite.config import Probe, RunSpec
from edgc.suite.training.probe import TIMED, GradientProbe, spectrum, timed
from tests.fixtures.studies import tiny_experiment, tiny_reference, tiny_spec
from tests.fixtures.synthetic_runs import write_run

STEPS, WINDOW = 40, 4
GAUSSIAN = 0.5 * math.log(2 * math.pi * math.e)


def probed_study(records, folder, more=(), reference=None, seeds=1) -> Study:
    """A study of finished runs that left these records in probe.jsonl: one, or one a seed of what `records(seed)`
    gives."""
    specs = []
    for seed in range(1, seeds + 1):
        plain = tiny_spec("dense", seed).model_dump()
        plain["training"]["probe"] |= {"entropy_every": 1, "window": WINDOW}
        specs.append(spec := RunSpec.model_validate(plain))
        write_run(spec, folder / spec.run_id)
        files.append_jsonl(folder / spec.run_id / "probe.jsonl", records(seed) if callable(records) else records)
    experiment = tiny_experiment(["dense"]).model_copy(update={"tables": tuple(more), "figures": tuple(more)})
    return Study(experiment, gather(specs, folder), reference or tiny_reference([]))


def record(step: int, nats: dict[str, list[float]], seconds: dict[str, float], stage: int = 0) -> dict:
    """Entropies of matrices a and b by rate."""
    made = {"step": step, "stage": stage, "parameters": ["a", "b"], "shapes": [[10, 10], [10, 10]]}
    elements = {rate: 200 * float(rate) for rate in nats}
    return made | {"entropy": {"gaussian": nats}, "seconds": {"gaussian": seconds}, "elements": elements}


def trend(step: int) -> float:
    return -6 + 0.01 * step


def sampled_records() -> list[dict]:
    """A steady trend; a quarter of the elements is off by ±.02 on the two matrices and takes half the time."""
    return [
        record(
            step,
            {"1": [trend(step), trend(step)], "0.25": [trend(step) + 0.02, trend(step) - 0.02]},
            {"1": 0.008, "0.25": 0.004},
        )
        for step in range(1, STEPS + 1)
    ]


def trajectory(nats: list[float], window: int = WINDOW) -> EntropyTrajectory:
    steps = pd.RangeIndex(1, len(nats) + 1)
    return EntropyTrajectory("r", 0, "gaussian", len(nats), window, pd.DataFrame({1.0: nats, 0.25: nats}, index=steps))


def test_entropy_moves_between_windows_of_steps_however_often_it_is_looked_at():
    looked = trajectory([trend(step) for step in range(1, STEPS + 1)])
    sparse = replace(looked, nats=looked.nats.iloc[::2])
    for own in (looked, sparse):
        assert movement(own) == pytest.approx({"early": 0.04, "late": 0.32})


def test_records_become_rows_and_survive_parquet(tmp_path):
    frames = probed_study(sampled_records(), tmp_path / "runs").frames
    matrices, stages = (frames.entropies[frames.entropies["parameter"].isna() == is_stage] for is_stage in (0, 1))
    assert len(matrices) == STEPS * 2 * 2
    assert len(stages) == STEPS * 2
    first = stages[(stages["step"] == 1) & (stages["rate"] == 0.25)].iloc[0]
    assert first["entropy"] == pytest.approx(trend(1))
    assert (first["seconds"], first["elements"], first["estimator"]) == (0.004, 50, "gaussian")
    frames.write(tmp_path / "frames")
    again = Frames.read(tmp_path / "frames")
    pd.testing.assert_frame_equal(again.entropies, frames.entropies, check_dtype=False)
    assert again.spectra.empty


def test_a_last_line_cut_by_a_crash_is_dropped_and_a_run_without_probe_has_no_rows(tmp_path):
    study = probed_study(sampled_records(), tmp_path)
    run = study.frames.runs["run_id"].item()
    path = tmp_path / run / "probe.jsonl"
    path.write_text(path.read_text()[:-30])
    spec = RunSpec.model_validate(files.read_json(tmp_path / run / "spec.json"))
    assert gather([spec], tmp_path).entropies["step"].max() == STEPS - 1
    path.unlink()
    assert gather([spec], tmp_path).entropies.empty


def test_window_means_hold_over_complete_windows():
    nats = pd.Series([1.0, 3.0, 5.0, 7.0, 100.0], index=range(1, 6))
    assert window_means(nats, 2).to_dict() == {1: 2, 2: 2, 3: 6, 4: 6}
    assert window_means(nats, 2, every=2).to_dict() == {1: 1, 2: 1, 3: 5, 4: 5}, "a window's first step is sampled"
    lagged = window_means(nats, 2, lag=1)
    assert lagged[:2].isna().all()
    assert lagged[3] == lagged[4] == 2


def test_a_step_function_is_followed_exactly_and_its_inside_is_lost_otherwise():
    steps = [float(level) for level in range(10) for _ in range(WINDOW)]
    exact = followed(trajectory(steps), WINDOW)
    assert (exact["error"], exact["inside"], exact["correlation"]) == (0, 0, pytest.approx(1))
    noise = [level + (-1) ** i for i, level in enumerate(steps)]
    found = followed(trajectory(noise), WINDOW)
    assert (found["error"], found["inside"]) == (0, 1)
    assert 0 < found["correlation"] < 1
    sampled = followed(trajectory(noise), WINDOW, alpha=0.25)
    assert sampled["error"] == 1, "the only step that is sampled is above its window's mean by 1"
    assert sampled["means_correlation_late"] == pytest.approx(1), "but so it is in every window"


def test_an_early_fall_makes_correlations_high_only_over_the_whole_run():
    fall = [10.0 - i for i in range(4)]
    noise = np.random.default_rng(1).standard_normal(36)
    found = followed(trajectory([*fall, *(0.01 * noise)]), WINDOW)
    assert found["correlation"] > 0.9 > found["correlation_late"]


def test_a_rate_that_was_not_measured_is_missing():
    assert all(math.isnan(value) for value in followed(trajectory([1.0] * 8), 4, beta=0.5).values())


def test_sampling_tells_cost_error_and_which_limits_hold(tmp_path):
    claims = [
        {"id": "sampler-time", "text": "-", "where": "-", "status": "confirmed", "value": 94, "unit": "%"},
        {"id": "window-correlation", "text": "-", "where": "-", "status": "confirmed", "value": 0.94},
    ]
    study = probed_study(sampled_records(), tmp_path, reference=tiny_reference(claims))
    table = samples.SAMPLING.build(study).set_index(["beta", "alpha"])
    assert set(table.index) == {(1.0, 1.0), (1.0, 0.5), (1.0, 0.25), (0.25, 1.0), (0.25, 0.5), (0.25, 0.25)}, (
        "a window of four steps has no tenth"
    )
    assert table.loc[(1, 1), "saved_percent"] == 0
    assert table.loc[(0.25, 0.25), "saved_percent"] == pytest.approx(100 * (1 - 0.5 / 4))
    assert table.loc[(0.25, 1), "sample_ms"] == pytest.approx(4)
    assert table.loc[(0.25, 1), "elements_percent"] == pytest.approx(25)
    assert table.loc[(0.25, 1), "matrix_error"] == pytest.approx(0.02)
    assert table.loc[(0.25, 1), "matrix_bias"] == pytest.approx(0)
    assert table.loc[(0.25, 1), "window_error"] == pytest.approx(0), "the stage's mean is exact"
    assert table.loc[(1, 0.25), "window_error"] == pytest.approx(0.015), "the first of four steps of .01"
    assert table["limits"].isna().all()
    row = pd.Series({"alpha": 0.1, "beta": 0.25, "saved_percent": 95, "timed_saved_percent": 93, "matrix_error": 0.02})
    row = pd.concat([row, pd.Series({"correlation_late": 0.9, "means_correlation_late": 0.99})])
    assert samples._limits(row, study) == (
        "time saved ≥ 94 %: yes; on the timed shapes: no; correlation with every step ≥ 0.94: no; "
        "with full means ≥ 0.94: yes; error ≤ 0.01 nats: no"
    )


def test_shapes_that_are_only_timed_are_told_apart(tmp_path):
    plain = sampled_records()
    only_timed = timed(Probe(rates=(1.0, 0.25), timed_shapes=((8, 6), (6, 8))))
    table = samples.SAMPLING.build(probed_study([*only_timed, *plain], tmp_path / "both"))
    assert len(only_timed) == TIMED
    assert (table["timed_sample_ms"] > 0).all()
    assert table.loc[table["beta"] == 1, "timed_elements_percent"].eq(100).all()
    without = samples.SAMPLING.build(probed_study(plain, tmp_path / "alone"))
    assert without["timed_sample_ms"].isna().all()
    columns = [name for name in table if not name.startswith("timed_")]
    pd.testing.assert_frame_equal(table[columns], without[columns])


def test_window_table_has_the_lengths_that_fit(tmp_path):
    study = probed_study(sampled_records(), tmp_path)
    table = samples.WINDOW.build(study).set_index("window")
    assert list(table.index) == [5, 10]
    assert table.loc[5, "windows"] == 8
    assert table.loc[5, "error"] == pytest.approx(0.02), "a fifth step of .01 a step is sampled, two before the middle"
    assert table.loc[5, "full_correlation"] > table.loc[10, "full_correlation"] > 0.9


def looked_at(matrices) -> list[dict]:
    """Records of a probe on `matrices(step, name)` of three matrices."""
    probe = GradientProbe(0, Probe(entropy_every=1, rates=(1.0,), spectra_every=1))
    for step in range(STEPS):
        own = [NamedTensor(f"layers.{name}.fc.weight", matrices(step, name)) for name in range(3)]
        probe.local(step, own)
        probe.average(step, own)
    return probe.take()


def verdicts(study: Study) -> dict[str, str]:
    table = observations.build(study)
    names = {measure.text: name for name, measure in MEASURES.items()}
    return {names.get(row.measure, row.part): row.verdict for row in table.itertuples()}


def test_random_matrices_that_shrink_support_every_part_of_the_premise(tmp_path):
    generator = torch.Generator().manual_seed(1)
    sizes = [math.exp(-0.02 * step + 0.1 * math.sin(step)) for step in range(STEPS)]
    records = looked_at(lambda step, _: sizes[step] * torch.randn(96, 128, generator=generator))
    found = verdicts(probed_study(records, tmp_path))
    assert set(found.values()) == {SUPPORTS}
    assert set(observations.PARTS) < set(found)


def test_shrinking_low_rank_matrices_of_constant_entropy_contradict_it(tmp_path):
    """The rank grows while the size of the elements stays: entropy cannot see it."""
    generator = torch.Generator().manual_seed(2)

    def matrix(step: int, _: int) -> torch.Tensor:
        rank = 4 + step
        product = torch.randn(96, rank, generator=generator) @ torch.randn(rank, 128, generator=generator)
        return product / product.std() + 1e-3 * torch.randn(96, 128, generator=generator)

    found = verdicts(probed_study(looked_at(matrix), tmp_path))
    for name in ("ratio_32", "relative_range", "rank_distance", "predicts"):
        assert found[name] == CONTRADICTS, name
    assert found["late"] == PARTLY


def test_a_parts_verdict_follows_from_its_measures():
    told = [
        conclusion("falls", found)["verdict"] for found in ([SUPPORTS] * 2 + [PARTLY], [CONTRADICTS] * 2 + [PARTLY])
    ]
    assert told == [SUPPORTS, CONTRADICTS]
    mixed = conclusion("falls", [SUPPORTS, CONTRADICTS])
    assert mixed["verdict"] == PARTLY
    assert "1 × supports, 1 × contradicts" in mixed["words"]


def test_verdicts_turn_at_their_limits():
    measure = MEASURES["ratio_8"]
    limits = (measure.supports, (measure.supports + measure.contradicts) / 2, measure.contradicts)
    assert [measure.verdict(value) for value in limits] == [SUPPORTS, PARTLY, CONTRADICTS]
    assert measure.supports > measure.contradicts
    other = MEASURES["kurtosis"]
    assert [other.verdict(v) for v in (other.supports, other.contradicts)] == [SUPPORTS, CONTRADICTS]
    assert other.supports < other.contradicts


def random_then_growing(seed: int) -> list[dict]:
    """Records of normal matrices, then from step 13 on of rank-8 ones with normal rests that grow to a steady size."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(step: int, _: int) -> torch.Tensor:
        normal = torch.randn(48, 64, generator=generator)
        if step < 12:
            return normal
        product = torch.randn(48, 8, generator=generator) @ torch.randn(8, 64, generator=generator)
        return product + min(0.05 * 2 ** ((step - 12) // WINDOW), 0.4) * normal

    return looked_at(matrix)


def test_the_law_of_the_error_is_near_where_matrices_are_normal_and_steady_where_they_stay_alike(tmp_path):
    study = probed_study(random_then_growing, tmp_path, seeds=3)
    table = normality.ERROR_LAW.build(study).set_index("rank")
    row = table.loc[16]
    assert (row["n"], row["near_n"], row["near_step"]) == (3, 3, 1), "normal from the first window on"
    assert row["first"] == pytest.approx(1, abs=0.03)
    assert row["first_low"] < row["first"] < row["first_high"]
    assert row["lowest"] < 0.1
    assert 13 <= row["lowest_step"] <= 16
    assert row["steady_step"] == WINDOW + 1, "the second window, as the first has none before it"
    assert row["steady_after"] < 100
    said = normality.ERROR_LAW.words(table.reset_index())
    assert "n = 3: of rank 16, c is 0.993 in the first step" in said
    assert "It is first within 10 % of 1 at step 1 (1 to 1). From step 5 (5 to 5) on" in said
    by_kind = normality.NORMALITY.build(study)
    assert set(by_kind["kind"]) == {"fc", "layer 0", "layer 1", "layer 2"}
    by_kind = by_kind[by_kind["kind"] == "fc"].set_index("until")
    assert list(by_kind.index) == [0.0, 0.1, 0.3, 1.0]
    assert by_kind["gap"].abs().max() < 0.05, "sums of normal products are near to normal: what fails is independence"
    assert by_kind.loc[1.0, "c_16"] < 0.7 < by_kind.loc[0.1, "c_16"]


def test_intervals_of_steps_and_shares_end_where_the_run_does():
    ends = {
        f"{name}_{end}": [value] for name in ("step", "share") for end, value in (("low", -260.0), ("high", 1462.0))
    }
    table = pd.DataFrame({"iterations": [1000], **ends})
    cut = cut_off(table, {"step": (1, table["iterations"]), "share": (0, 100)}).iloc[0]
    assert cut[["step_low", "step_high"]].tolist() == [1, 1000]
    assert cut[["share_low", "share_high"]].tolist() == [0, 100]


def test_a_histogram_far_from_a_normal_one_has_less_entropy():
    torch.manual_seed(4)
    normal, heavy = torch.randn(64, 512), torch.distributions.Laplace(0.0, 1.0).sample((64, 512))
    gaps = [normality.entropy_gap(spectrum(unit)["histogram"]) for unit in (normal, heavy)]
    assert gaps == pytest.approx([0, GAUSSIAN - 1 - 0.5 * math.log(2)], abs=0.01), "by the formula of Laplace's"


def test_a_verdict_over_seeds_is_that_of_its_whole_interval():
    measure = MEASURES["kurtosis"]
    told = [
        measure.of_seeds(pd.Series(values)) for values in ([0.1, 0.2, 0.3], [0.1, 0.9, 1.4], [5.0], [4.0, 4.1, 4.2])
    ]
    assert [each["verdict"] for each in told] == [SUPPORTS, PARTLY, CONTRADICTS, CONTRADICTS]
    assert [each["seeds"] for each in told] == [3, 3, 1, 3]


TABLES = ("sampling", "window", "observations", "normality", "error_law")
FIGURES = ("sampling_time", "sampling_error", "observed_entropy", "window_correlation", "gradient_histograms")
FIGURES += ("spectra", "low_rank_error", "error_prediction", "gradient_correlation", "normality")


@pytest.mark.tier("test")
@pytest.mark.parametrize("probed", [True, False])
def test_every_table_and_figure_is_drawn_whatever_was_probed(tmp_path, probed):
    generator = torch.Generator().manual_seed(3)
    records = looked_at(lambda step, _: torch.randn(24, 32, generator=generator)) if probed else []
    study = probed_study(records, tmp_path / "runs", TABLES + FIGURES)
    study = Study(
        study.experiment.model_copy(update={"tables": TABLES, "figures": FIGURES}), study.frames, study.reference
    )
    for name in FIGURES:
        write_figure(name, study, tmp_path)
        assert (len(pd.read_csv(tmp_path / f"{name}.csv")) > 0) == probed, name
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for name in TABLES:
        write_table(name, study, tmp_path)
        assert (len(pd.read_csv(tmp_path / f"{name}.csv")) > 0) == probed, name


def test_a_trajectory_knows_its_run(tmp_path):
    study = probed_study(sampled_records(), tmp_path)
    own = next(trajectories(next(lines(study.frames.runs)), study))
    assert (own.stage, own.estimator, own.iterations, own.window, own.late) == (0, "gaussian", STEPS, WINDOW, 4)
