"""The cloze questions: fair to whoever knows nothing, and the same on every machine."""

from __future__ import annotations

import argparse
import inspect
import random

from hypothesis import given
from hypothesis import strategies as st

from edgc.suite.training.evaluation.cloze import (
    CHOICES,
    CONTEXT,
    CONTINUATION,
    SLACK,
    passages,
    questions,
    word_end,
)


def prose(words: int, seed: int) -> str:
    """Text of random words, no two stretches of which are alike."""
    random_ = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(random_.choices(letters, k=random_.randint(2, 9))) for _ in range(words))


DOCUMENTS = [prose(4000, seed) for seed in range(50)]
QUESTIONS = questions(DOCUMENTS, limit=100_000)


def test_the_answer_follows_the_context_and_no_other_choice_does():
    everything = "\0".join(DOCUMENTS)
    for question in QUESTIONS[:300]:
        follows = [question["context"] + choice in everything for choice in question["choices"]]
        assert [at for at, true in enumerate(follows) if true] == [question["label"]]


def test_choices_differ_and_the_context_gives_none_away():
    for question in QUESTIONS + questions([inspect.getsource(argparse)]):
        assert len({choice.strip() for choice in question["choices"]}) == CHOICES
        assert not any(choice.strip() in question["context"] for choice in question["choices"])


def test_a_cut_is_where_a_tokenizer_cuts_too():
    for question in QUESTIONS:
        assert not question["context"][-1].isspace()
        assert all(choice[0].isspace() and not choice[-1].isspace() for choice in question["choices"])


def test_who_ignores_the_context_scores_a_quarter():
    n = len(QUESTIONS)
    assert n > 1000
    guesses = {
        "first": lambda choices: 0,
        "shortest": lambda choices: min(range(CHOICES), key=lambda i: len(choices[i])),
        "alphabetical": lambda choices: min(range(CHOICES), key=lambda i: choices[i]),
        "most words": lambda choices: max(range(CHOICES), key=lambda i: len(choices[i].split())),
        "hash": lambda choices: len("".join(choices)) % CHOICES,
    }
    five_sigma = 5 * (0.25 * 0.75 / n) ** 0.5
    for name, guess in guesses.items():
        accuracy = sum(guess(question["choices"]) == question["label"] for question in QUESTIONS) / n
        assert abs(accuracy - 1 / CHOICES) < five_sigma, name


def test_every_passage_is_used_once():
    contexts = [question["context"] for question in QUESTIONS]
    choices = [choice for question in QUESTIONS for choice in question["choices"]]
    assert len(set(contexts)) == len(contexts)
    assert len(set(choices)) == len(choices)


def test_equal_text_gives_equal_questions_in_whatever_order():
    assert questions(DOCUMENTS[::-1], limit=100_000) == QUESTIONS


def test_more_of_the_same_text_adds_nothing():
    assert questions(DOCUMENTS * 2, limit=100_000) == QUESTIONS


def test_limit_is_kept_and_short_text_gives_no_questions():
    assert len(questions(DOCUMENTS, limit=30)) == 30
    assert questions(["too short " * 10] * 100) == []
    assert questions(["unbroken" * 1000]) == []
    assert questions(["0x00: 0x01, " * 1000]) == []
    assert questions([]) == []


@given(st.lists(st.sampled_from(["word", "an", "Überlänge", "x" * 70, "42", "\n\n", "    ", "# ---"]), max_size=400))
def test_passages_are_disjoint_stretches_of_bounded_length(parts: list[str]):
    text = " ".join(parts)
    after = 0
    for passage in passages(text):
        assert CONTEXT <= len(passage.context) <= CONTEXT + SLACK
        assert CONTINUATION <= len(passage.continuation) <= CONTINUATION + SLACK
        after = text.index(passage.context + passage.continuation, after) + len(passage.context)
        after += len(passage.continuation)


@given(st.text(alphabet="ab \n", max_size=60), st.integers(0, 60))
def test_word_end_is_the_first_within_reach(text: str, at: int):
    ends = [
        i
        for i in range(max(at, 1), min(at + SLACK, len(text) - 1) + 1)
        if text[i].isspace() and not text[i - 1].isspace()
    ]
    assert word_end(text, at) == (ends[0] if ends else None)
