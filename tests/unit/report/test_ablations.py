"""Each ablation of EDGC is EDGC without one part, and with nothing else changed."""

import pytest

from edgc.suite.config import Method, available, load, load_experiment

#: What switching a part off changes, as (group, setting) → value.
PARTS = {
    "edgc_no_gds": {("policy", "alpha"): 1, ("policy", "beta"): 1},
    "edgc_no_dac": {("policy", "alignment"): False},
    "edgc_no_warmup": {("policy", "warmup_fraction"): 0, ("policy", "warmup_limit"): 1e-6},
    "edgc_no_feedback": {("aggregator", "error_feedback"): False},
    "edgc_no_warm_start": {("aggregator", "warm_start"): False},
}
WORDS = {"name", "title", "source", "summary"}


def settings(method: Method) -> dict:
    """What a run depends on, by (group, setting)."""
    plain = method.model_dump(exclude=WORDS)
    groups = {name: value if isinstance(value, dict) else {"": value} for name, value in plain.items()}
    return {(group, name): value for group, values in groups.items() for name, value in values.items()}


def changed(method: Method, whole: Method) -> dict:
    before = settings(whole)
    return {name: value for name, value in settings(method).items() if value != before[name]}


def test_every_part_has_its_ablation():
    assert {name for name in available(Method) if name.startswith("edgc_no_")} == set(PARTS)


@pytest.mark.parametrize("name", PARTS)
def test_an_ablation_is_edgc_without_exactly_one_part(name):
    method, whole = load(Method, name), load(Method, "edgc")
    assert settings(method).keys() == settings(whole).keys()
    assert changed(method, whole) == PARTS[name]


def test_the_experiment_keeps_them_apart_by_that_part_only():
    runs = {spec.method.name: spec for spec in load_experiment("ablation-parts").runs() if spec.seed == 1}
    whole = runs["edgc"]
    for name, part in PARTS.items():
        assert changed(runs[name].method, whole.method) == part
        assert runs[name].training == whole.training


def test_without_warm_up_the_first_window_ends_it():
    experiment = load_experiment("ablation-parts")
    policy = next(s for s in experiment.runs() if s.method.name == "edgc_no_warmup").method.policy
    assert policy.warmup_limit * experiment.training.iterations < policy.window


def test_variants_share_warm_up_and_window():
    experiment = load_experiment("ablation-variants")
    adaptive = [s.method.policy for s in experiment.runs() if s.method.policy.name != "fixed"]
    shared = {(p.window, p.warmup_fraction, p.warmup_limit) for p in adaptive}
    assert len(shared) == 1
    window, fraction, _ = shared.pop()
    fixed = {s.method.policy.start_step for s in experiment.runs() if s.method.name.startswith("powersgd")}
    first_end = fraction * experiment.training.iterations
    assert fixed == {first_end}
    assert first_end % window == 0
    assert experiment.training.iterations >= 400
    assert window >= 20
