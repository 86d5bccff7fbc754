"""A multiple-choice task from held-out text: which of four passages follows this one?

Held-out documents are cut into disjoint passages, each a context and the text that follows it. The passages
are shuffled by hash and dealt into hands of four; one of a hand, again by hash, lends its context and is the
answer, and the four continuations are the choices. All four were drawn alike, so whoever ignores the context
scores 25 %.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

VERSION = 1
CONTEXT = 200  # characters; with the continuation about 80 tokens of a small vocabulary: fits a window of 128
CONTINUATION = 40  # characters
SLACK = 20  # characters that either may run over to end with a word
CHOICES = 4
EXAMPLES = 400
MINIMUM = 20  # fewer examples say nothing
LETTERS = 0.4  # least share of letters on either side of the cut: text and code have 0.6, tables few
# acc_mutual_info ranks choices by log p(choice | context) − log p(choice), by what the context adds. It tells
# small models apart, which acc hardly does: some passages are much more likely than others after anything.
METRICS = ("acc", "acc_norm", "acc_mutual_info")

#: What an lm-eval task of these questions says, but for where they are.
DEFINITION: dict[str, Any] = {
    "output_type": "multiple_choice",
    "doc_to_text": "context",
    "doc_to_choice": "choices",
    "doc_to_target": "label",
    "target_delimiter": "",  # a choice begins with the white space that follows the context
    "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in METRICS],
    "metadata": {"version": VERSION},
}

WORD_END = re.compile(r"(?<=\S)(?=\s)")


@dataclass(frozen=True)
class Passage:
    """A stretch of a document, cut where a word ends: white space begins `continuation`."""

    context: str
    continuation: str


def word_end(text: str, at: int) -> int | None:
    """First end of a word in `text` from position `at` on, at most `SLACK` characters away."""
    found = WORD_END.search(text, at, min(at + SLACK + 1, len(text)))
    return found.start() if found else None


def passages(text: str) -> Iterator[Passage]:
    """Disjoint passages of one document, in order, but those with little to read (rulers, tables, digits)."""
    start = 0
    while start + CONTEXT + CONTINUATION < len(text):
        cut = word_end(text, start + CONTEXT)
        end = word_end(text, cut + CONTINUATION) if cut is not None else None
        if cut is not None and end is not None:
            context, continuation = text[start:cut], text[cut:end]
            if min(_letters(context), _letters(continuation)) >= LETTERS:
                yield Passage(context, continuation)
        start = end or start + CONTEXT + CONTINUATION


def _letters(text: str) -> float:
    return sum(character.isalpha() for character in text) / len(text)


def questions(documents: Sequence[str], limit: int = EXAMPLES) -> list[dict[str, Any]]:
    """Up to `limit` questions {context, choices, label}; equal documents give equal questions."""
    cuts = {_digest(p.context, p.continuation): p for text in documents for p in passages(text)}
    order = sorted(cuts)  # by hash: a shuffle that no library version changes
    count = min(limit, len(order) // CHOICES)
    hands = ([cuts[key] for key in order[hand : CHOICES * count : count]] for hand in range(count))
    return [question for hand in hands if (question := _question(hand))]


def _question(hand: Sequence[Passage]) -> dict[str, Any] | None:
    """The hand as a question; None if it has two equal choices or its context gives one away."""
    choices = [passage.continuation for passage in hand]
    label = int(_digest(*choices), 16) % len(choices)
    context = hand[label].context
    bare = {choice.strip() for choice in choices}
    if len(bare) < len(choices) or any(choice in context for choice in bare):
        return None
    return {"context": context, "choices": choices, "label": label}


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()
