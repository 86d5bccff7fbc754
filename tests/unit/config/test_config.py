"""Settings: what is refused and how it is said, what an override means, and what makes two runs the same run."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgc.base.errors import UserError
from edgc.base.files import canonical_json
from edgc.config import (
    KINDS,
    Corpus,
    Experiment,
    Model,
    RunSpec,
    available,
    load,
    load_experiment,
)
from edgc.config.settings import merge, validate

CONFIGS = Path(__file__).parents[3] / "configs"

FILES: dict[str, dict[str, Any]] = {
    "models/tiny": {"name": "tiny", "num_layers": 4, "hidden_size": 32, "num_heads": 2, "seq_length": 16},
    "clusters/four": {"name": "four", "device": "cpu", "device_model": "CPU", "nodes": 1, "processes_per_node": 4},
    "corpora/text": {"name": "text", "source": "stdlib", "tokenizer": {"kind": "bpe", "vocab_size": 512}},
    "tasks/cloze": {"name": "cloze"},
    "methods/dense": {"aggregator": {"name": "dense"}, "policy": {"name": "fixed"}},
    "methods/powersgd": {"aggregator": {"name": "lowrank"}, "policy": {"name": "fixed", "rank": 4}},
    "methods/topk": {"aggregator": {"name": "topk"}, "policy": {"name": "fixed", "ratio": 0.1}},
    "methods/edgc": {"aggregator": {"name": "lowrank"}, "policy": {"name": "edgc", "max_rank": 8, "window": 20}},
    "experiments/trial": {
        "name": "trial",
        "title": "A trial",
        "shows": "Nothing.",
        "minutes": 1,
        "models": ["tiny"],
        "methods": ["dense", "powersgd", "topk", "edgc"],
        "corpus": "text",
        "cluster": "four",
        "parallel": {"pipeline": 2, "data": 2},
        "training": {"iterations": 10, "micro_batch": 2, "global_batch": 8},
        "tasks": ["cloze"],
    },
}
for _name, _values in FILES.items():
    if _name.startswith("methods/"):
        _values |= {"name": _name.removeprefix("methods/"), "title": "T", "source": "S", "summary": "A sentence."}

Edit = Callable[[dict[str, Any]], None]


def write_configs(folder: Path, *edits: Edit) -> Path:
    """A small, complete configs folder, after `edits` to its values by file."""
    files = copy.deepcopy(FILES)
    for edit in edits:
        edit(files)
    for name, values in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return folder


def put(path: str, value: Any) -> Edit:
    """Set `file:a.b.c` to a value; the file is `experiments/trial` if none is named."""
    file, _, keys = path.rpartition(":")
    *groups, last = keys.split(".")

    def edit(files: dict[str, Any]) -> None:
        at = files[file or "experiments/trial"]
        for group in groups:
            at = at.setdefault(group, {})
        at[last] = value

    return edit


def both(*edits: Edit) -> Edit:
    def edit(files: dict[str, Any]) -> None:
        for one in edits:
            one(files)

    return edit


def few_bits(bits: int) -> Edit:
    """Let `topk` be of few bits."""

    def edit(files: dict[str, Any]) -> None:
        files["methods/topk"] |= {"aggregator": {"name": "few_bits"}, "policy": {"name": "fixed", "bits": bits}}

    return edit


#: What is wrong, and what the message must name: the setting, its value, what is allowed.
BAD: dict[str, tuple[Edit, list[str]]] = {
    "unknown setting": (put("training.learning_rate", 1), ["training.learning_rate", "unknown", "lr", "iterations"]),
    "unknown policy setting": (
        put("overrides.powersgd.method.policy.rnak", 4),
        ["method.policy.rnak", "unknown", "rank", "start_step"],
    ),
    "unknown method": (put("methods", ["dense", "powersdg"]), ["method", "'powersdg'", "powersgd", "topk"]),
    "loss gaps of its own": (put("judgement.gaps_from", "trial"), ["judgement.gaps_from", "mode: train"]),
    "unknown model": (put("models", ["gpt9"]), ["model", "'gpt9'", "tiny"]),
    "unknown task": (put("tasks", ["trivia"]), ["task", "'trivia'", "cloze"]),
    "unknown corpus": (put("corpus", "books"), ["corpus", "'books'", "text"]),
    "unknown cluster": (put("cluster", "moon"), ["cluster", "'moon'", "four"]),
    "unknown aggregator": (
        put("methods/topk:aggregator.name", "telepathy"),
        ["aggregator", "'telepathy'", "'dense'", "'lowrank'", "'topk'"],
    ),
    "unknown policy": (put("methods/topk:policy.name", "whim"), ["policy", "'whim'", "'fixed'", "'edgc'"]),
    "setting missing": (put("training", {"iterations": 10}), ["training.micro_batch", "required"]),
    "degrees against processes": (put("parallel.data", 4), ["1 × pipeline 2 × data 4 = 8", "four", "1 × 4 = 4"]),
    "layers against stages": (put("models/tiny:num_layers", 5), ["parallel.pipeline 2", "model.num_layers 5"]),
    "heads against tensor degree": (
        put("parallel", {"tensor": 4}),
        ["parallel.tensor 4", "model.num_heads 2"],
    ),
    "width against heads": (put("models/tiny:hidden_size", 33), ["hidden_size 33", "num_heads 2"]),
    "batch against micro-batches": (
        put("training.global_batch", 6),
        ["training.global_batch 6", "micro_batch 2", "parallel.data 2"],
    ),
    "rank 0": (put("overrides.powersgd.method.policy.rank", 0), ["method.policy.rank = 0", "1", "powersgd"]),
    "rank not a number": (put("methods/powersgd:policy.rank", "all"), ["policy.rank = 'all'", "integer"]),
    "edgc rank 0": (put("methods/edgc:policy.max_rank", 0), ["policy.max_rank = 0", "1"]),
    "edgc ranks crossed": (put("methods/edgc:policy.min_rank", 9), ["min_rank 9", "max_rank 8"]),
    "ratio 0": (put("methods/topk:policy.ratio", 0), ["policy.ratio = 0", "greater than 0"]),
    "ratio above 1": (put("methods/topk:policy.ratio", 1.5), ["policy.ratio = 1.5", "less than or equal to 1"]),
    "rank and ratio": (put("methods/topk:policy.rank", 4), ["policy", "one of rank, ratio and bits", "rank and ratio"]),
    "no code of these bits": (few_bits(3), ["bits 3", "few_bits", "1, 2, 4, 8"]),
    "policy does not fit": (put("methods/powersgd:aggregator.name", "topk"), ["topk", "ratio", "fixed", "rank"]),
    "no amount": (put("methods/powersgd:policy", {"name": "fixed"}), ["lowrank", "rank", "nothing"]),
    "vocabulary over uint16": (
        put("corpora/text:tokenizer.vocab_size", 65536),
        ["tokenizer.vocab_size = 65536", "less than or equal to 65535"],
    ),
    "vocabulary missing": (put("corpora/text:tokenizer", {"kind": "bpe"}), ["vocab_size", "257 to 65535"]),
    "vocabulary of gpt2": (
        put("corpora/text:tokenizer", {"kind": "gpt2", "vocab_size": 512}),
        ["vocab_size", "gpt2", "50257"],
    ),
    "files without paths": (put("corpora/text:source", "files"), ["paths", "source files"]),
    "hub without data set": (put("corpora/text:source", "hub"), ["dataset", "source hub"]),
    "stage that is not there": (
        put("methods/topk:placement", {"stages": [2]}),
        ["method.placement.stages", "2", "0 to 1"],
    ),
    "negative stage": (put("methods/topk:placement", {"stages": [-1]}), ["placement.stages", "-1", "0"]),
    "no stage": (put("methods/topk:placement", {"stages": []}), ["placement.stages", "at least 1"]),
    "lr not finite": (put("training.lr", float("inf")), ["training.lr = inf", "finite"]),
    "lr 0": (put("training.lr", 0), ["training.lr = 0", "greater than 0"]),
    "min_lr above lr": (put("training.min_lr", 1.0), ["min_lr 1.0", "lr 0.00015"]),
    "settings of another optimizer": (
        put("training.muon", {"momentum": 0.9}),
        ["muon", "not adamw", "optimizer: muon"],
    ),
    "parts of matrices for Muon": (
        both(put("training.optimizer", "muon"), put("parallel", {"tensor": 2, "data": 2})),
        ["training.optimizer muon", "parallel.tensor is 2", "optimizer: adamw"],
    ),
    "shards of matrices for Muon": (
        both(put("training.optimizer", "muon"), put("training.shard", "optimizer")),
        ["training.optimizer muon", "training.shard is optimizer", "training.shard: none"],
    ),
    "Muon beside a method's own update": (
        both(put("training.optimizer", "muon"), put("methods/dense:synchronisation", {"name": "sign"})),
        ["training.optimizer muon", "dense", "sign", "optimizer: adamw"],
    ),
    "parts of matrices for Dion": (
        both(put("parallel", {"tensor": 2, "data": 2}), put("methods/dense:synchronisation", {"name": "dion"})),
        ["dense", "dion", "whole matrices", "parallel.tensor is 2"],
    ),
    "an optimizer that the method is not made for": (
        both(put("methods/topk:optimizer", "muon"), put("overrides", {"topk": {"training": {"optimizer": "adamw"}}})),
        ["training.optimizer adamw", "topk is made for muon", "training.optimizer: muon"],
    ),
    "more fragments than layers": (
        put("methods/topk:synchronisation", {"name": "outer", "fragments": 5}),
        ["topk exchanges 5 parts", "tiny has 4", "model.num_layers"],
    ),
    "shards of local steps": (
        both(put("training.shard", "optimizer"), put("methods/topk:synchronisation", {"name": "outer"})),
        ["training.shard optimizer", "topk has synchronisation outer", "every_step"],
    ),
    "error feedback beside momentum": (
        put("methods/powersgd:synchronisation", {"name": "dion"}),
        ["synchronisation dion", "without error feedback"],
    ),
    "parameters that do not travel": (
        put("training.parameter_wire", "int8"),
        ["training.parameter_wire int8", "training.shard: optimizer"],
    ),
    "shards of late averages": (
        both(put("training.shard", "optimizer"), put("methods/topk:synchronisation", {"name": "delayed"})),
        ["training.shard optimizer", "topk has synchronisation delayed", "every_step"],
    ),
    "a look at whole averages of shards": (
        both(put("training.shard", "optimizer"), put("training.probe", {"spectra_every": 5})),
        ["training.shard optimizer", "training.probe"],
    ),
    "iterations 0": (put("training.iterations", 0), ["training.iterations = 0", "greater than 0"]),
    "half an iteration": (put("training.iterations", 1.5), ["training.iterations = 1.5", "integer"]),
    "port of the system": (put("clusters/four:port", 80), ["port = 80", "1024"]),
    "seed negative": (put("seeds", [-1]), ["seed = -1", "0"]),
    "seed twice": (put("seeds", [1, 1]), ["seeds [1, 1]", "twice"]),
    "no method": (put("methods", []), ["methods", "at least 1"]),
    "baseline not run": (put("judgement", {"baseline": "adam"}), ["judgement.baseline", "'adam'"]),
    "override of nothing": (put("overrides.adam", {}), ["overrides", "adam", "dense", "topk"]),
    "override of the comparison": (
        put("overrides.topk.seed", 7),
        ["overrides.topk", "seed", "method, training and loop"],
    ),
    "override of a whole group": (put("overrides.topk.method", True), ["overrides.topk.method", "True", "settings"]),
    "override by another method": (
        lambda files: files["experiments/trial"].update(
            learning_rates=[1e-3], overrides={"topk": {"method": {"of": "edgc"}}}
        ),
        ["method topk_lr0.001", "method.of", "unknown"],
    ),
    "override of the name": (
        put("overrides.topk.method", {"name": "huge"}),
        ["overrides.topk.method.name", "'huge'", "topk", "variants"],
    ),
    "learning rates that print alike": (
        put("learning_rates", [1e-3, 1.00000001e-3]),
        ["learning_rates", "0.001", "twice"],
    ),
    "unknown setting of a group that may be null": (
        put("clusters/four:links", {"speed": 1}),
        ["four.yaml", "links.speed", "unknown", "rate"],
    ),
    "unknown setting of pipeline traffic": (
        put("methods/powersgd:pipeline", {"backward": {"name": "lowrank", "rnak": 2}}),
        ["pipeline.backward.rnak", "unknown", "rank", "warm_start"],
    ),
    "number that no computer holds": (put("minutes", 10**400), ["trial.yaml", "minutes", str(2**63)]),
    "number too small to divide by": (put("training.lr", 1e-310), ["training.lr = 1e-310", "1e-100"]),
    "key that is no text": (put("overrides", {True: {}}), ["trial.yaml", "overrides", "True", "quotes"]),
    "file of nowhere": (put("corpus", "../corpora/text"), ["experiment trial", "corpus", "there are: text"]),
    "name against file": (put("models/tiny:name", "huge"), ["tiny.yaml", "'huge'", "'tiny'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_setting_value_and_what_is_allowed(case: str, tmp_path: Path) -> None:
    edit, needles = BAD[case]
    with pytest.raises(UserError) as caught:
        load_experiment("trial", write_configs(tmp_path, edit))
    message = str(caught.value)
    assert [n for n in needles if n not in message] == [], message
    assert len(message.splitlines()) <= 10, "more than a screen"


@pytest.mark.parametrize(
    "text", ["", "- a\n- b", "name: [text", "name: !!python/object/apply:os.getcwd []", "\tname: text"]
)
def test_files_that_are_not_settings_are_refused(text: str, tmp_path: Path) -> None:
    configs = write_configs(tmp_path)
    (configs / "corpora" / "text.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"text\.yaml"):
        load(Corpus, "text", configs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty; must hold settings"),
        ("- a", "is a list; must hold settings"),
        ("name: text\nsource: &a {x: *a}", "source: must not be deeper than 20 levels"),
        ("&a [*a]", "settings: must not be deeper than 20 levels"),
        ("name: " + "[" * 5000, "nested too deep"),
        ("name: 2024-02-29", "name: datetime.date(2024, 2, 29) is a date; if it is meant as text, quote it"),
        ("name: 2024-02-31", "not valid YAML: day is out of range"),
        ("? [a]\n: 1", "not valid YAML"),
    ],
)
def test_what_a_file_must_not_hold_is_said(text: str, says: str, tmp_path: Path) -> None:
    configs = write_configs(tmp_path)
    (configs / "corpora" / "text.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load(Corpus, "text", configs)
    assert str(caught.value).startswith(f"{configs / 'corpora' / 'text.yaml'}: {says}")


def test_errors_of_a_file_that_is_all_wrong_fit_on_a_screen(tmp_path: Path) -> None:
    names = {f"setting_{n}": "x" * 500 for n in range(100)}
    configs = write_configs(tmp_path, lambda files: files["experiments/trial"].update(names))
    with pytest.raises(UserError) as caught:
        load_experiment("trial", configs)
    lines = str(caught.value).splitlines()
    assert 3 < len(lines) <= 24
    assert max(map(len, lines)) <= 500
    told = [line for line in lines if "unknown setting" in line]
    assert lines[-1] == f"  and {100 - len(told)} more"


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    configs = write_configs(tmp_path)
    (configs / "corpora" / "text.yaml").write_bytes(b"name: \xff\xfe\xff")
    with pytest.raises(UserError, match=r"text\.yaml"):
        load(Corpus, "text", configs)


def test_unknown_experiment_and_run_list_what_there_is(tmp_path: Path) -> None:
    configs = write_configs(tmp_path)
    with pytest.raises(UserError, match="trial"):
        load_experiment("tiral", configs)
    experiment = load_experiment("trial", configs)
    known = experiment.runs(configs)[0]
    with pytest.raises(UserError, match=known.run_id):
        experiment.run("tiny-dense-s1-00000000", configs)
    assert experiment.run(known.run_id, configs) == known


def test_every_file_in_the_repository_loads() -> None:
    for kind in KINDS:
        names = available(kind, CONFIGS)
        assert names, f"no {kind.__name__}"
        for name in names:
            assert load(kind, name, CONFIGS).name == name
    for name in available(Experiment, CONFIGS):
        runs = load_experiment(name, CONFIGS).runs(CONFIGS)
        assert len({run.run_id for run in runs}) == len(runs) > 0


@pytest.mark.parametrize(
    ("model", "parameters"),
    [("gpt2-124m", 124e6), ("gpt2-345m", 355e6), ("gpt2-1.3b", 1.3e9), ("gpt2-2.5b", 2.5e9), ("gpt2-12.1b", 12.1e9)],
)
def test_models_have_the_size_they_are_called_by(model: str, parameters: float) -> None:
    m = load(Model, model, CONFIGS)
    counted = m.num_layers * 12 * m.hidden_size**2 + (50257 + m.seq_length) * m.hidden_size
    assert counted == pytest.approx(parameters, rel=0.05)


@pytest.mark.parametrize(
    ("name", "gpus", "degrees", "batch"),
    [("paper-345m", 16, (2, 4, 2), 64), ("paper-v100", 32, (4, 4, 2), 64), ("paper-h100", 64, (4, 4, 4), 128)],
)
def test_the_papers_setups(name: str, gpus: int, degrees: tuple[int, int, int], batch: int) -> None:
    for run in load_experiment(name, CONFIGS).runs(CONFIGS):
        assert run.cluster.processes == gpus
        assert (run.parallel.tensor, run.parallel.pipeline, run.parallel.data) == degrees
        assert (run.training.micro_batch, run.training.global_batch, run.model.seq_length) == (4, batch, 1024)
        assert (run.training.iterations, run.training.decay_iterations) == (230_000, 320_000)


def test_the_matrix_is_models_by_methods_by_seeds(tmp_path: Path) -> None:
    configs = write_configs(tmp_path, put("seeds", [3, 1]))
    runs = load_experiment("trial", configs).runs(configs)
    expected = [("tiny", method, seed) for method in ("dense", "powersgd", "topk", "edgc") for seed in (3, 1)]
    assert [(run.model.name, run.method.name, run.seed) for run in runs] == expected
    assert {run.micro_batches for run in runs} == {2}  # 8 sequences, 2 ranks, 2 a micro-batch


def test_an_override_changes_its_method_alone(tmp_path: Path) -> None:
    changed = put("overrides.topk", {"training": {"lr": 1e-3}, "method": {"policy": {"ratio": 0.5}}})
    before_configs = write_configs(tmp_path / "before")
    after_configs = write_configs(tmp_path / "after", changed)
    before = load_experiment("trial", before_configs).runs(before_configs)
    after = load_experiment("trial", after_configs).runs(after_configs)
    assert {a.method.name for a, b in zip(after, before, strict=True) if a.spec_id != b.spec_id} == {"topk"}
    topk = after[2]
    assert (topk.training.lr, topk.training.iterations) == (1e-3, 10)
    assert topk.method.policy.ratio == 0.5  # type: ignore[attr-defined]


def test_a_method_brings_the_optimizer_that_it_is_made_for(tmp_path: Path) -> None:
    configs = write_configs(tmp_path, put("methods/topk:optimizer", "muon"))
    runs = load(Experiment, "trial", configs).runs(configs)
    assert {run.method.name: run.training.optimizer for run in runs} == {
        "dense": "adamw", "powersgd": "adamw", "topk": "muon", "edgc": "adamw",
    }  # fmt: skip


def test_merge_goes_into_groups_and_drops_them_when_their_name_changes() -> None:
    base = {"a": {"x": 1, "y": {"z": 2, "w": 3}}, "policy": {"name": "fixed", "rank": 4}, "b": [1, 2]}
    assert merge(base, {"a": {"y": {"z": 5}}}) == {**base, "a": {"x": 1, "y": {"z": 5, "w": 3}}}
    assert merge(base, {"policy": {"rank": 8}})["policy"] == {"name": "fixed", "rank": 8}
    assert merge(base, {"policy": {"name": "fixed", "rank": 8}})["policy"] == {"name": "fixed", "rank": 8}
    assert merge(base, {"policy": {"name": "edgc", "max_rank": 8}})["policy"] == {"name": "edgc", "max_rank": 8}
    variant = {"low": {"of": "topk", "title": "Low", "policy": {"ratio": 0.5}}}
    assert merge(variant, {"low": {"of": "topk", "title": "L"}})["low"] == variant["low"] | {"title": "L"}
    assert merge(variant, {"low": {"of": "edgc", "title": "L"}})["low"] == {"of": "edgc", "title": "L"}
    assert merge(base, {"a": {"of": "b"}})["a"] == base["a"] | {"of": "b"}, "a group that is not of anything"
    assert merge(base, {"b": [3], "a": 7}) == {**base, "b": [3], "a": 7}
    assert merge(base, {}) == base
    assert base["a"] == {"x": 1, "y": {"z": 2, "w": 3}}, "the base is not touched"


def specs(tmp_path: Path, *edits: Edit) -> list[RunSpec]:
    configs = write_configs(tmp_path, *edits)
    return load_experiment("trial", configs).runs(configs)


def test_spec_id_ignores_words_and_the_batch_system(tmp_path: Path) -> None:
    words = [put(f"methods/dense:{field}", "other") for field in ("title", "source", "summary")]
    place = [put("clusters/four:schedule", {"partition": "gpu", "time_minutes": 9}), put("clusters/four:port", 2900)]
    experiment = [put("title", "other"), put("minutes", 99), put("seeds", [1, 2])]
    before, after = specs(tmp_path / "a")[0], specs(tmp_path / "b", *words, *place, *experiment)[0]
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
    assert specs(tmp_path / "a")[0].spec_id != specs(tmp_path / "b", edit)[0].spec_id


def test_spec_id_does_not_depend_on_how_the_file_is_written(tmp_path: Path) -> None:
    plain = specs(tmp_path / "a")[0]
    spelled_out = specs(tmp_path / "b", put("training.lr", "1.5e-4"), put("models/tiny:dropout", 0))[0]
    assert plain == spelled_out
    assert plain.spec_id == spelled_out.spec_id


def test_spec_id_is_golden(tmp_path: Path) -> None:
    """Finished runs are found by it: whoever changes it makes everybody train again."""
    assert specs(tmp_path)[0].spec_id == "49618652"


def test_published_runs_keep_their_ids() -> None:
    """A new setting at its default is no other run: what is published and what is on somebody's disk is found again."""
    published = sorted((CONFIGS.parent / "results" / "published").glob("*/manifests/*.spec.json"))
    assert published
    for path in published:
        spec = validate(RunSpec, json.loads(path.read_text(encoding="utf-8")), str(path))
        assert path.name == f"{spec.run_id}.spec.json"


def test_the_factors_wire_format_is_in_the_id_unless_it_is_fp32(tmp_path: Path) -> None:
    def powersgd(folder: str, *edits: Edit) -> str:
        return specs(tmp_path / folder, *edits)[1].spec_id

    wire = "methods/powersgd:aggregator.wire_dtype"
    assert powersgd("a") == powersgd("b", put(wire, "fp32")) != powersgd("c", put(wire, "bf16"))


def test_a_spec_survives_its_file(tmp_path: Path) -> None:
    for spec in specs(tmp_path, put("methods/topk:placement", {"stages": [0], "exclude": ["embedding"]})):
        text = json.dumps(spec.model_dump(mode="json"))
        assert validate(RunSpec, json.loads(text), "spec.json") == spec


def test_canonical_json_has_one_text_per_value() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "ε"}) == '{"a":"ε","b":[1,2.5,null]}'
    assert canonical_json({"x": 1, "y": {"q": 1, "p": 2}}) == canonical_json({"y": {"p": 2, "q": 1}, "x": 1})
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


def test_every_setting_is_described() -> None:
    def fields(schema: dict[str, Any]) -> None:
        for group in (schema, *schema.get("$defs", {}).values()):
            for name, field in group.get("properties", {}).items():
                assert field.get("description") or "const" in field, f"{group['title']}.{name} has no description"

    for kind in KINDS:
        fields(kind.model_json_schema())


def test_an_experiment_may_be_another_with_changes(tmp_path: Path) -> None:
    smoke, lab = (load(Experiment, name).model_dump() for name in ("smoke", "smoke-lab"))
    own = {"name", "of", "title", "shows", "cluster"}
    assert {key: value for key, value in smoke.items() if key not in own} == {
        key: value for key, value in lab.items() if key not in own
    }
    assert lab["cluster"] == "lab"
    for name, of in (("a", "b"), ("b", "a"), ("c", "nobody")):
        (tmp_path / "experiments").mkdir(exist_ok=True)
        (tmp_path / "experiments" / f"{name}.yaml").write_text(f"name: {name}\nof: {of}\n")
    with pytest.raises(UserError, match="a of b of a never ends"):
        load(Experiment, "a", tmp_path)
    with pytest.raises(UserError, match=r"of = 'nobody': no file .*there are: a, b, c"):
        load(Experiment, "c", tmp_path)
