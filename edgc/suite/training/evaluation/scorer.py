"""lm-eval's Hugging Face model, made fit for windows of a hundred tokens."""

from __future__ import annotations

from typing import Any

from lm_eval.models.huggingface import HFLM
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

Request = tuple[tuple[str, str], list[int], list[int]]  # (texts, context tokens, continuation tokens)

LOGITS_BYTES = {"cpu": 16 * 2**20, "cuda": 4 * 2**30}  # of one batch; what suits a CPU's caches is fastest
MOST_SEQUENCES = 64


class Scorer(HFLM):
    """`HFLM` that also scores continuations longer than the window, and counts what did not fit.

    HFLM refuses such continuations. Here they are scored window by window, each token given the tokens before
    it in its window, as lm-eval's rolling log-likelihood does. Whatever fits is scored by HFLM, unchanged.
    """

    def __init__(self, model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast) -> None:
        self.window: int = model.config.n_positions  # tokens
        self.requests = 0  # scored so far
        self.truncated = 0  # of these, how many lost tokens on the left
        fitting = LOGITS_BYTES[model.device.type] // (self.window * model.config.vocab_size * 4)
        options = {"max_length": self.window, "batch_size": max(1, min(MOST_SEQUENCES, fitting))}
        super().__init__(pretrained=model, tokenizer=tokenizer, **options)  # type: ignore[call-arg]

    def _loglikelihood_tokens(self, requests: list[Request], **options: Any) -> list[tuple[float, bool]]:
        self.requests += len(requests)
        self.truncated += sum(len(context) + len(following) > self.window + 1 for _, context, following in requests)
        pieces = [_pieces(request, self.window) for request in requests]
        flat = [piece for each in pieces for piece in each]
        scores = iter(super()._loglikelihood_tokens(flat, **options))  # type: ignore[misc]
        return [_joined([next(scores) for _ in each]) for each in pieces]


def _pieces(request: Request, window: int) -> list[Request]:
    """The request as requests whose continuations fit the window and, read in order, make up the whole."""
    texts, context, continuation = request
    starts = range(0, max(len(continuation), 1), window)
    return [(texts, context + continuation[:at], continuation[at : at + window]) for at in starts]


def _joined(scores: list[tuple[float, bool]]) -> tuple[float, bool]:
    """Log-probability (nats) of all pieces, and whether greedy decoding would give each."""
    return sum(logprob for logprob, _ in scores), all(greedy for _, greedy in scores)
