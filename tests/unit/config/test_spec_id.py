"""What makes two runs the same run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgc.core.base.files import canonical_json
from edgc.core.base.settings import validate
from edgc.report import manifests
from edgc.suite.config import RunSpec
from tests.fixtures.configs import Edit, put, trial_runs

PUBLISHED = Path(__file__).parents[3] / "results" / "published"


def test_spec_id_ignores_words_and_the_batch_system(tmp_path: Path) -> None:
    words = [put(f"methods/dense:{field}", "other") for field in ("title", "source", "summary")]
    place = [put("clusters/four:schedule", {"partition": "gpu", "time_minutes": 9}), put("clusters/four:port", 2900)]
    experiment = [put("title", "other"), put("minutes", 99), put("seeds", [1, 2])]
    before, after = trial_runs(tmp_path / "a")[0], trial_runs(tmp_path / "b", *words, *place, *experiment)[0]
    assert before.spec_id == after.spec_id
    assert before.run_id == f"tiny-dense-s1-{before.spec_id}"


@pytest.mark.parametrize(
    "edit",
    [
        put("models/tiny:dropout", 0.1),
        put("methods/dense:aggregator.wire_dtype", "bf16"),
        put("methods/dense:overlap", True),
        put("corpora/text:tokenizer.vocab_size", 600),
        put("clusters/four:link_gbit", 1.0),
        put("training.lr", 1e-3),
        put("parallel", {"pipeline": 4, "data": 1}),
        put("seeds", [2]),
    ],
)
def test_spec_id_follows_everything_the_result_depends_on(edit: Edit, tmp_path: Path) -> None:
    assert trial_runs(tmp_path / "a")[0].spec_id != trial_runs(tmp_path / "b", edit)[0].spec_id


def test_spec_id_does_not_depend_on_how_the_file_is_written(tmp_path: Path) -> None:
    plain = trial_runs(tmp_path / "a")[0]
    spelled_out = trial_runs(tmp_path / "b", put("training.lr", "1.5e-4"), put("models/tiny:dropout", 0))[0]
    assert plain == spelled_out
    assert plain.spec_id == spelled_out.spec_id


def test_published_runs_keep_their_ids() -> None:
    """A new setting at its default is no other run: what is published and what is on somebody's disk is found again."""
    published = {
        name: runs for path in PUBLISHED.glob("*/manifests.json") for name, runs in manifests.read(path).items()
    }
    assert published
    for name, records in published.items():
        assert validate(RunSpec, records["spec"], name).run_id == name


def test_the_factors_wire_format_is_in_the_id_unless_it_is_fp32(tmp_path: Path) -> None:
    def powersgd(folder: str, *edits: Edit) -> str:
        return trial_runs(tmp_path / folder, *edits)[1].spec_id

    wire = "methods/powersgd:aggregator.wire_dtype"
    assert powersgd("a") == powersgd("b", put(wire, "fp32")) != powersgd("c", put(wire, "bf16"))


def test_a_spec_survives_its_file(tmp_path: Path) -> None:
    for spec in trial_runs(tmp_path, put("methods/topk:placement", {"stages": [0], "exclude": ["embedding"]})):
        text = json.dumps(spec.model_dump(mode="json"))
        assert validate(RunSpec, json.loads(text), "spec.json") == spec


def test_canonical_json_has_one_text_per_value() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "ε"}) == '{"a":"ε","b":[1,2.5,null]}'
    assert canonical_json({"x": 1, "y": {"q": 1, "p": 2}}) == canonical_json({"y": {"p": 2, "q": 1}, "x": 1})
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))
