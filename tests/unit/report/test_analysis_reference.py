"""The paper's numbers: only confirmed ones, each with where it stands."""

import re

import pytest
import yaml

from edgc.core.base.errors import UserError
from edgc.report.ledger import deviations, ledger
from edgc.report.reference_values import TAGC, Claim, Entry, Reference, load_reference
from edgc.report.render import NOTHING
from edgc.suite.config import CONFIGS, Experiment, Method, available, load, load_experiment
from tests.fixtures.pages import ROOT

PUBLISHED = ROOT / "results/published"


def test_only_confirmed_claims_have_a_number_and_all_say_where():
    reference = load_reference()
    assert all(claim.where and claim.text for claim in reference.claims)
    assert all(claim.value is None for claim in reference.claims if claim.status != "confirmed")
    confirmed = {claim.value for claim in reference.claims if claim.value is not None}
    assert confirmed == {46.45, 16.13, 94, 0.94}
    assert reference.method in available(Method)


@pytest.mark.parametrize("experiment", ["paper-v100", "paper-h100"])
def test_the_papers_experiments_are_its_set_ups(experiment):
    spec = next(s for s in load_experiment(experiment).runs() if s.method.name == "edgc")
    setup = load_reference().setups[spec.model.name]
    assert (setup.devices, setup.device_model) == (spec.cluster.processes, spec.cluster.device_model)
    assert setup.parallel == spec.parallel
    theirs = (setup.global_batch, setup.iterations, setup.precision)
    assert theirs == (spec.training.global_batch, spec.training.iterations, spec.training.precision)


def test_the_deviations_say_nothing_about_what_the_paper_names():
    row = next(d for d in load_reference().deviations if d.topic == "Settings")
    assert row.paper == NOTHING
    assert "defined nowhere" in row.released


def test_a_number_that_is_not_available_is_refused():
    with pytest.raises(ValueError, match="cannot have a value"):
        Claim(id="x", text="x", where="table 1", status="not available", value=1.0)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "colour: unknown setting"),
        ({"claims": []}, "claims"),
        ({"setups": {}}, "claims name setups"),
    ],
)
def test_bad_reference_is_a_user_error(tmp_path, change, message):
    values = yaml.safe_load((CONFIGS / "reference" / "edgc-2511.10333.yaml").read_text())
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "x.yaml").write_text(yaml.safe_dump(values | change))
    with pytest.raises(UserError, match=message):
        load_reference("x", tmp_path)


def test_missing_reference_names_the_file(tmp_path):
    with pytest.raises(UserError, match=r"nope\.yaml"):
        load_reference("nope", tmp_path)


def test_deviations_table_has_every_column_filled():
    table = deviations([load_reference()])
    assert len(table) >= 4
    assert table.map(len).min().min() > 0


def test_deviations_name_methods_and_experiments_that_exist():
    """And a method that follows the released code has the settings that the table says it has."""
    told = " ".join(deviation.here for deviation in load_reference().deviations)
    named = set(re.findall(r"\bedgc_\w+", told))
    assert {"edgc_released", "edgc_loss"} <= named <= set(available(Method))
    assert set(re.findall(r"experiment ([\w-]+)", told)) <= set(available(Experiment))
    released, paper = load(Method, "edgc_released").policy, load(Method, "edgc").policy
    assert (released.estimator, paper.estimator) == ("histogram", "gaussian")
    assert (released.step_limit, paper.step_limit) == (4, 8)
    assert released.alignment
    assert paper.alignment


def test_deviations_of_tagc_are_rows_of_the_table_and_settings_of_its_methods():
    released = load_reference(TAGC)
    table = deviations([load_reference(), released])
    assert list(table.groupby("Method", sort=False).size()) == [
        len(load_reference().deviations),
        len(released.deviations),
    ]
    told = " ".join(deviation.here for deviation in released.deviations)
    named = re.findall(r"\((\w+(?:, \w+)*)\):", told)
    ours, theirs = (load(Method, name).aggregator.model_dump() for name in ("tagc", "tagc_released"))
    settings = {setting for names in named for setting in names.split(", ")}
    assert settings == {name for name in ours if ours[name] != theirs[name]}


ENTRY = {"kind": "claim", "of": "quality", "ours": "–", "experiment": "smoke", "verdict": "in part"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": None}, "verdict"),
        ({"experiment": None}, "needs an experiment, a command, or what stands in"),
        ({"verdict": "not run"}, "needs what would settle it"),
        ({"text": "x"}, "one of `of` and `text`"),
        ({"of": None}, "one of `of` and `text`"),
    ],
)
def test_a_line_of_the_ledger_that_leaves_something_open_is_refused(change, message):
    assert Entry.model_validate(ENTRY)
    with pytest.raises(ValueError, match=message):
        Entry.model_validate(ENTRY | change)


def test_the_ledger_tells_of_all_that_the_file_has():
    values = load_reference().model_dump()
    with pytest.raises(ValueError, match="the ledger tells of"):
        Reference.model_validate(values | {"ledger": values["ledger"][:3]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shown": ("smoke/tables/none.md",)}, "smoke/tables/none.md: not in"),
        ({"experiment": "none"}, "none"),
        ({"verdict": {"table": "smoke/tables/paper", "where": {"claim": "none"}}}, "has no row"),
        ({"verdict": {"table": "smoke/tables/none", "where": {"claim": "quality"}}}, "has no row"),
        ({"verdict": {"table": "smoke/tables/paper", "where": {"claim": "quality"}}}, "say in `settles`"),
    ],
)
def test_what_the_ledger_names_has_to_be_there(change, message):
    entry = Entry.model_validate(ENTRY | change)
    with pytest.raises(UserError, match=message):
        ledger(load_reference().model_copy(update={"ledger": (entry,)}), PUBLISHED, "")
