"""Settings that are refused: how it is said, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.config import Corpus, load, load_experiment
from tests.fixtures.configs import Edit, both, few_bits, put, refused, write_configs


def stacked(*edits: Edit) -> Edit:
    """The trial with all replicas in one process: on one, but for `edits`."""
    one = (put("clusters/four:processes_per_node", 1),) if edits else ()
    return both(put("loop", "stacked"), put("parallel", {"data": 2}), *one, *edits)


#: What is wrong, and what the message must name: the setting, its value, what is allowed.
BAD: dict[str, tuple[Edit, list[str]]] = {
    "unknown setting": (put("training.learning_rate", 1), ["training.learning_rate", "unknown", "lr", "iterations"]),
    "unknown policy setting": (
        put("overrides.powersgd.method.policy.rnak", 4),
        ["method.policy.rnak", "unknown", "rank", "start_step"],
    ),
    "unknown method": (put("methods", ["dense", "powersdg"]), ["method", "'powersdg'", "powersgd", "topk"]),
    "loss gaps of its own": (put("judgement.gaps_from", ["trial"]), ["judgement.gaps_from", "mode: train"]),
    "no list": (put("judgement.gaps_from", "trial"), ["judgement.gaps_from", "'trial'", "a list in brackets"]),
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
    "CPUs are no GPU to share": (
        put("clusters/four:processes_per_gpu", 2),
        ["processes_per_gpu 2", "device cuda", "cpu", "processes_per_node is 4"],
    ),
    "processes left over": (
        both(put("clusters/four:device", "cuda"), put("clusters/four:processes_per_gpu", 3)),
        ["processes_per_gpu 3", "every GPU", "processes_per_node is 4"],
    ),
    "stages on one GPU": (
        both(put("clusters/four:device", "cuda"), put("clusters/four:processes_per_gpu", 4)),
        ["parallel.pipeline 2", "gloo", "processes_per_gpu is 4", "parallel.pipeline 1"],
    ),
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
    "a probe between local steps": (
        both(put("training.probe", {"entropy_every": 5}), put("methods/dense:synchronisation", {"name": "outer"})),
        ["training.probe", "dense", "outer", "every_step"],
    ),
    "a spectrum that is not seen again": (
        both(
            put("methods/edgc:aggregator.min_compression_ratio", 2.0),
            put("methods/edgc:policy", {"name": "edgc_measured", "mean_rank": 4, "max_rank": 8, "window": 20}),
        ),
        ["min_compression_ratio 2", "edgc_measured", "use 1"],
    ),
    "a scale of ranks by timing": (
        both(put("methods/edgc:policy.max_rank", None), put("methods/edgc:placement", {"scale": {"attention": 2.0}})),
        ["placement.scale", "edgc", "max_rank", "alignment: false"],
    ),
    "names of another model": (
        both(
            put("parallel", {"data": 4}),
            put("overrides", {"dense": {"loop": "ddp"}}),
            put("methods/dense:placement", {"exclude": ["layers."]}),
        ),
        ["loop ddp", "dense", "placement.exclude", "loop: megatron"],
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
    "several groups that choose when to exchange": (
        both(put("parallel", {"tensor": 2, "data": 2}), put("methods/dense:synchronisation", {"name": "paced"})),
        ["dense", "paced", "tensor 2 and pipeline 1", "use 1 for both"],
    ),
    "one square of parts and wholes": (
        both(put("parallel", {"tensor": 2, "data": 2}), put("methods/powersgd:aggregator", {"name": "batched"})),
        ["powersgd", "batched", "parallel.tensor is 2"],
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
    "replicas of a process on several": (stacked(), ["loop stacked", "four has 4 processes", "one-core", "megatron"]),
    "replicas of a process on links": (
        stacked(put("clusters/four:processes_per_node", 1), put("clusters/four:links", {})),
        ["loop stacked", "four has 1 processes and links", "megatron"],
    ),
    "replicas of a process in stages": (
        stacked(put("parallel.pipeline", 2)),
        ["parallel.pipeline is 2", "use parallel.pipeline: 1"],
    ),
    "replicas of a process with overlap": (
        stacked(put("methods/topk:overlap", True)),
        ["loop stacked", "method.overlap is true", "method.overlap: false"],
    ),
    "replicas of a process by the clock": (
        stacked(put("methods/edgc:policy.max_rank", None)),
        ["loop stacked", "edgc", "how long exchanges take", "max_rank"],
    ),
    "shards of replicas in a process": (
        stacked(put("training.shard", "optimizer")),
        ["training.shard optimizer", "loop stacked", "loop: megatron"],
    ),
    "error feedback beside momentum": (
        put("methods/powersgd:synchronisation", {"name": "dion"}),
        ["synchronisation dion", "without error feedback"],
    ),
    "parameters that do not travel": (
        put("training.parameter_wire", "int8"),
        ["training.parameter_wire int8", "training.shard: optimizer"],
    ),
    "a look at whole averages of shards": (
        both(put("training.shard", "optimizer"), put("training.probe", {"spectra_every": 5})),
        ["training.shard optimizer", "training.probe"],
    ),
    "iterations 0": (put("training.iterations", 0), ["training.iterations = 0", "greater than 0"]),
    "half an iteration": (put("training.iterations", 1.5), ["training.iterations = 1.5", "integer"]),
    "no node": (put("clusters/four:nodes", 0), ["nodes = 0", "greater than 0"]),
    "no time for a checkpoint": (
        put("clusters/four:schedule", {"time_minutes": 1}),
        ["checkpoint_seconds 120", "at most half of time_minutes 1"],
    ),
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
    "learning rates of a simulation": (
        both(put("mode", "simulate"), put("learning_rates", [1e-3])),
        ["learning_rates", "for mode: train", "not for mode: simulate", "leave it out"],
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
    message = refused(needles, tmp_path, edit)
    assert len(message.splitlines()) <= 10, "more than a screen"


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
        ("name: [text", "not valid YAML"),
        ("\tname: text", "not valid YAML"),
        ("name: !!python/object/apply:os.getcwd []", "not valid YAML"),
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
