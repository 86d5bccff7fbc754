"""Zero-shot evaluation: lm-eval's numbers on the data that is here, and the truth about what is not."""

from __future__ import annotations

import inspect
import json
import math
import random
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from edgc.core.base.errors import UserError
from edgc.core.base.files import read_json, write_json, write_jsonl
from edgc.suite.config import Task, available, load
from edgc.suite.training.evaluation import tasks, zero_shot
from edgc.suite.training.evaluation.scorer import Scorer
from edgc.suite.training.evaluation.zero_shot import evaluate_run
from tests.fixtures.limits import HANG

CONFIGS = Path(__file__).parents[3] / "configs"
WINDOW = 48
ROWS = 12
STOCK = ("lambada_openai", "hellaswag", "piqa", "mathqa", "winogrande", "race", "arc_easy", "openbookqa")
TEXT = inspect.getsource(inspect)  # something to read that every Python has


def task(name: str) -> Task:
    return load(Task, name, CONFIGS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: a random GPT-2 with a window of 48 tokens and a vocabulary of 400."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    )
    PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>", bos_token="<|endoftext|>").save_pretrained(
        folder / "export"
    )
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=400, n_positions=WINDOW, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5)
    GPT2LMHeadModel(config).save_pretrained(folder / "export")
    write_json(folder / "status.json", {"status": "done", "step": 1})
    return folder


@pytest.fixture(scope="module")
def scorer(run: Path) -> Scorer:
    model = GPT2LMHeadModel.from_pretrained(run / "export")
    return Scorer(model, PreTrainedTokenizerFast.from_pretrained(run / "export"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora") / "tiny-00000000"
    write_jsonl(folder / "validation.jsonl", [{"id": "inspect.py", "text": TEXT}])
    return folder


def row(name: str, at: int, words: random.Random) -> dict:
    """One example in the original schema of a stock task, made of random words."""

    def some(least: int = 1) -> str:
        return " ".join(words.choices(["red", "blue", "tea", "runs", "under", "seven", "old"], k=least + at % 3))

    letters = ["A", "B", "C", "D"]
    four = [some() for _ in letters]
    listed = {"text": four, "label": letters}
    problem = {"question": some() + "?", "answer": letters[at % 4], "options": four}
    return {
        "lambada_openai": {"text": some(6)},
        "hellaswag": {
            "activity_label": some(),
            "ctx_a": some(),
            "ctx_b": some(),
            "endings": four,
            "label": str(at % 4),
        },
        "piqa": {"goal": some(), "sol1": some(2), "sol2": some(3), "label": at % 2},
        "mathqa": {"Problem": some(), "options": "a ) 1 , b ) 22 , c ) 3 , d ) 4 , e ) 55", "correct": "abcde"[at % 5]},
        "winogrande": {
            "sentence": f"{some()} _ {some()}",
            "option1": "tea",
            "option2": "old",
            "answer": str(1 + at % 2),
        },
        "race": {"article": some(), "problems": repr([problem])},
        "arc_easy": {"id": str(at), "question": some(), "choices": listed, "answerKey": letters[at % 4]},
        "openbookqa": {"id": str(at), "question_stem": some(), "choices": listed, "answerKey": letters[at % 4]},
    }[name]


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict]]:
    words = random.Random(0)
    return {name: [row(name, at, words) for at in range(ROWS)] for name in STOCK}


@pytest.fixture
def mirror(tmp_path: Path, rows: dict[str, list[dict]], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mirror"
    for name in STOCK:
        write_jsonl(folder / str(task(name).local_file), rows[name])
    monkeypatch.setenv("EDGC_EVAL_DATA", str(folder))
    return folder


@pytest.fixture
def nothing_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mirror, and a hub that does not answer."""
    monkeypatch.delenv("EDGC_EVAL_DATA", raising=False)
    monkeypatch.setattr(tasks, "hub_reachable", lambda: False)


def evaluated(run: Path, names: list[str], corpus: Path, limit: int | None = None) -> dict[str, dict]:
    evaluate_run(run, [task(name) for name in names], corpus, limit)
    return read_json(run / "zero_shot.json")["tasks"]


@pytest.mark.tier("test")
@pytest.mark.usefixtures("mirror")
def test_every_task_file_runs_on_local_data(run: Path, corpus: Path, capfd: pytest.CaptureFixture[str]):
    names = available(Task, CONFIGS)
    assert set(STOCK) < set(names)
    records = evaluated(run, names, corpus)
    assert list(records) == names
    chance = {"lambada_openai": None, "piqa": 0.5, "winogrande": 0.5, "mathqa": 0.2}
    for name, record in records.items():
        assert (record["status"], record["reason"], record["metric"]) == ("done", None, task(name).metric)
        assert 0 <= record["value"] <= 1
        n, share = record["n"], record["value"]
        assert (len(record["right"]), record["right"].count("1")) == (n, round(share * n))
        assert record["stderr"] == pytest.approx(math.sqrt(share * (1 - share) / (n - 1)))
        assert record["chance"] == pytest.approx(chance.get(name, 0.25))
        assert 0 <= record["truncated"] <= 1
    assert {records[name]["n"] for name in STOCK} == {ROWS}
    assert records["stdlib_cloze"]["n"] == len((corpus / "tasks/stdlib_cloze.jsonl").read_text().splitlines()) >= 20
    assert records["stdlib_cloze"]["truncated"] > 0  # 240 characters in a window of 48 tokens
    assert str(run.parent) not in (run / "zero_shot.json").read_text()
    assert capfd.readouterr().out == ""


def test_only_the_data_of_a_stock_task_changes(mirror: Path, corpus: Path, tmp_path: Path):
    from lm_eval.tasks._yaml_loader import load_yaml

    data = {"dataset_path", "dataset_name", "dataset_kwargs", "training_split", "validation_split", "test_split"}
    loaded, missing = tasks.load_tasks([task(name) for name in STOCK], corpus, tmp_path / "scratch")
    assert missing == {}
    for name, path in tasks.stock_definitions(STOCK).items():
        stock = load_yaml(path)
        config = loaded[name].config
        for key in stock.keys() - data - {"metadata", "tag"}:
            assert config[key] == stock[key], (name, key)
        assert config.num_fewshot == 0
        assert config.metadata["version"] == stock["metadata"]["version"]


@pytest.mark.parametrize("name", ["piqa", "arc_easy", "mathqa"])
def test_accuracy_is_that_of_an_independent_computation(
    name: str, run: Path, corpus: Path, mirror: Path, rows: dict[str, list[dict]]
):
    model = GPT2LMHeadModel.from_pretrained(run / "export").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(run / "export")

    def logprob(prompt: str, answer: str) -> float:
        head, whole = tokenizer.encode(prompt), tokenizer.encode(prompt + answer)
        assert whole[: len(head)] == head
        assert len(whole) <= WINDOW
        with torch.no_grad():
            logprobs = model(torch.tensor([whole])).logits.double().log_softmax(-1)[0]
        return sum(logprobs[at - 1, whole[at]].item() for at in range(len(head), len(whole)))

    prompts = {
        "piqa": lambda r: (r["goal"], [r["sol1"], r["sol2"]], r["label"]),
        "arc_easy": lambda r: (r["question"], r["choices"]["text"], "ABCD".index(r["answerKey"])),
        "mathqa": lambda r: (r["Problem"], ["1", "22", "3", "4", "55"], "abcde".index(r["correct"])),
    }
    hits = 0
    for question, choices, label in map(prompts[name], rows[name]):
        scores = [logprob(f"Question: {question}\nAnswer:", f" {choice}") for choice in choices]
        hits += scores.index(max(scores)) == label
    assert evaluated(run, [name], corpus)[name]["value"] == pytest.approx(hits / ROWS)
    assert 0 < hits < ROWS  # or the comparison says little


def test_limit_takes_the_first_examples(run: Path, corpus: Path, mirror: Path, rows: dict[str, list[dict]]):
    limited = evaluated(run, ["piqa"], corpus, limit=5)["piqa"]
    write_jsonl(mirror / "piqa_validation.jsonl", rows["piqa"][:5])
    assert evaluated(run, ["piqa"], corpus)["piqa"] == limited
    assert limited["n"] == 5


def test_one_example_has_no_standard_error(run: Path, corpus: Path, mirror: Path):
    record = evaluated(run, ["piqa"], corpus, limit=1)["piqa"]
    assert (record["n"], record["stderr"]) == (1, None)


@pytest.mark.usefixtures("nothing_local")
def test_missing_data_is_reported_and_never_a_zero(run: Path, corpus: Path):
    records = evaluated(run, ["hellaswag", "stdlib_cloze", "race"], corpus)
    assert records["stdlib_cloze"]["status"] == "done"
    for name in ("hellaswag", "race"):
        record = records[name]
        assert (record["status"], record["value"], record["stderr"], record["n"]) == ("not run", None, None, 0)
        assert str(task(name).local_file) in record["reason"]
        assert "hub" in record["reason"]


def test_a_task_that_cannot_be_scored_leaves_the_others(
    run: Path, corpus: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
):
    scored = zero_shot._run

    def failing(what: Task, *rest) -> dict:
        if what.name == "piqa":
            raise IndexError(f"{mirror}/piqa is odd")
        return scored(what, *rest) | ({"value": math.inf} if what.name == "mathqa" else {})

    monkeypatch.setattr(zero_shot, "_run", failing)
    records = evaluated(run, ["piqa", "mathqa", "arc_easy"], corpus, limit=2)
    assert records["arc_easy"]["status"] == "done"
    for name, reason in (("piqa", "IndexError: piqa is odd"), ("mathqa", "its acc is inf")):
        assert (records[name]["status"], records[name]["value"]) == ("not run", None)
        assert reason in records[name]["reason"]


def test_too_little_held_out_text_is_reported(run: Path, tmp_path: Path):
    write_jsonl(tmp_path / "validation.jsonl", [{"id": "a", "text": TEXT[:3000]}])
    record = evaluated(run, ["stdlib_cloze"], tmp_path)["stdlib_cloze"]
    assert record["status"] == "not run"
    assert "validation_fraction" in record["reason"]


@pytest.mark.parametrize("status", ["diverged", "failed", "timeout"])
def test_a_run_that_ended_badly_has_no_accuracy(status: str, tmp_path: Path, corpus: Path):
    write_json(tmp_path / "status.json", {"status": status})
    record = evaluated(tmp_path, ["stdlib_cloze"], corpus)["stdlib_cloze"]
    assert (record["status"], record["reason"], record["value"]) == ("not run", f"run {status}", None)


def test_a_run_without_end_or_export_is_refused(tmp_path: Path, corpus: Path):
    with pytest.raises(UserError, match=r"status\.json"):
        evaluated(tmp_path, ["stdlib_cloze"], corpus)
    write_json(tmp_path / "status.json", {"status": "done"})
    with pytest.raises(UserError, match=r"export.*model\.safetensors"):
        evaluated(tmp_path, ["stdlib_cloze"], corpus)
    assert not (tmp_path / "zero_shot.json").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": "x", "lm_eval": "no_such_task"}, "no_such_task"),
        ({"name": "x", "metric": "f1"}, r"metric = 'f1'.*acc_mutual_info"),
        ({"name": "x", "lm_eval": "piqa", "local_file": "piqa_validation.jsonl", "metric": "bleu"}, "bleu"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, says: str, corpus: Path, mirror: Path, tmp_path: Path):
    with pytest.raises(UserError, match=says):
        tasks.load_tasks([Task(**settings)], corpus, tmp_path / "scratch")


def test_a_task_that_generates_text_is_refused(corpus: Path, mirror: Path, tmp_path: Path):
    write_jsonl(mirror / "trivia.jsonl", [{"question": "why", "answer": {"aliases": ["so"]}}])
    trivia = Task(name="x", lm_eval="triviaqa", local_file="trivia.jsonl", metric="exact_match")
    with pytest.raises(UserError, match="generate_until"):
        tasks.load_tasks([trivia], corpus, tmp_path / "scratch")


def test_a_mirror_that_is_not_there_is_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EDGC_EVAL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="EDGC_EVAL_DATA"):
        tasks.load_tasks([task("piqa")], corpus, tmp_path / "scratch")


def test_a_corpus_that_is_not_prepared_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"validation\.jsonl"):
        tasks.load_tasks([task("stdlib_cloze")], tmp_path, tmp_path / "scratch")


def test_a_continuation_longer_than_the_window_is_scored_window_by_window(scorer: Scorer):
    words = random.Random(3)
    context = [words.randrange(400) for _ in range(5)]
    continuation = [words.randrange(400) for _ in range(2 * WINDOW + 7)]
    ((score, _),) = scorer._loglikelihood_tokens([(("", ""), context, continuation)])
    expected = 0.0
    for at in range(0, len(continuation), WINDOW):
        piece = continuation[at : at + WINDOW]
        inputs = (context + continuation[:at] + piece)[-WINDOW - 1 : -1]
        with torch.no_grad():
            logprobs = scorer.model(torch.tensor([inputs])).logits.double().log_softmax(-1)[0]
        expected += sum(logprobs[i - len(piece), token].item() for i, token in enumerate(piece))
    assert score == pytest.approx(expected, rel=1e-5)


def test_what_fits_is_scored_as_lm_eval_does(scorer: Scorer):
    words = random.Random(4)

    def some(most: int) -> list[int]:
        return [words.randrange(400) for _ in range(words.randint(1, most))]

    requests = [(("", str(i)), some(40), some(20)) for i in range(40)]  # some contexts do not fit: cut alike
    before = scorer.truncated
    scores = scorer._loglikelihood_tokens(requests, disable_tqdm=True)
    assert scores == super(Scorer, scorer)._loglikelihood_tokens(requests, disable_tqdm=True)
    too_long = sum(len(context) + len(continuation) > WINDOW + 1 for _, context, continuation in requests)
    assert scorer.truncated - before == too_long > 0


def test_the_local_mirror_of_this_machine_runs(run: Path, corpus: Path):
    """The real data sets, those that EDGC_EVAL_DATA holds (in a bare clone: none)."""
    here = [name for name in STOCK if tasks.local_file(task(name))]
    records = evaluated(run, [*here, "stdlib_cloze"], corpus, limit=8)
    assert {record["n"] for record in records.values()} == {8}


def test_the_command_starts_without_the_heavy_libraries():
    import subprocess
    import sys

    heavy = ("torch", "lm_eval", "transformers", "datasets")
    code = f"import sys, edgc.suite.training.evaluation.zero_shot; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=True)
    assert json.loads(out.stdout.replace("'", '"')) == []
