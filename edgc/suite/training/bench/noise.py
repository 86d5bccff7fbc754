"""Which estimate of a run's loss narrows the interval of a loss gap most, for what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.suite.config import Experiment, RunSpec
from edgc.suite.training.data.dataset import open_corpus, validation_batches

LAST = (1, 2, 3, 5)  #: evaluations, the last ones, whose mean is the loss
BATCHES = (5, 20, 80, 320)  #: of held-out text in one evaluation at the end, and as many as it fills
LEAST_SEEDS = 3


class Estimate(NamedTuple):
    """One estimate of a run's loss, and what evaluations it takes."""

    kind: str  #: last: mean of the last `amount` evaluations; batches: one evaluation of `amount` batches
    amount: int
    loss: float  #: nats a token
    batches: int  #: evaluated for it in the run


def study(experiment: Experiment, results: Path, corpus: Path) -> pd.DataFrame:
    """One row per estimate and method but the baseline, of the experiment's finished runs.

    Columns: kind, amount (see `Estimate`; kind unpaired: the last evaluation, of seeds that do not match), method,
    title, n (seeds), `sd` of the gap to the baseline over seeds (nats), `seconds` that a run takes: its training, and
    the evaluations that the estimate needs.

    Raises `UserError` if the baseline or all other methods have fewer than `LEAST_SEEDS` finished seeds.
    """
    folder = results / experiment.name / "runs"
    finished = [spec for spec in experiment.runs() if (folder / spec.run_id / "trained").exists()]
    losses = pd.DataFrame([row for spec in finished for row in _rows(spec, folder / spec.run_id, corpus)])
    baseline = experiment.judgement.baseline
    seeds = losses.groupby("method")["seed"].nunique().to_dict() if len(losses) else {}
    methods = [name for name in seeds if name != baseline and seeds[name] >= LEAST_SEEDS]
    if seeds.get(baseline, 0) < LEAST_SEEDS or not methods:
        raise UserError(
            f"experiment {experiment.name}: finished seeds by method: {seeds or 'none'}; a spread needs at least "
            f"{LEAST_SEEDS} of {baseline} and of another method; run the experiment first"
        )
    rows: list[dict[str, Any]] = []
    for (kind, amount), own in losses[losses["method"].isin(methods)].groupby(["kind", "amount"], sort=False):
        same = losses[(losses["method"] == baseline) & (losses["kind"] == kind) & (losses["amount"] == amount)]
        reference = same.set_index("seed")["loss"]
        for (method, title), runs in own.groupby(["method", "title"], sort=False):
            gaps = (runs.set_index("seed")["loss"] - reference).dropna()
            row = {"kind": kind, "amount": amount, "method": method, "title": title, "n": len(gaps)}
            rows.append(row | {"sd": gaps.std(), "seconds": runs["seconds"].mean()})
            if (kind, amount) == ("last", 1):
                apart = float(np.hypot(runs["loss"].std(), reference.std()))
                rows.append(row | {"kind": "unpaired", "sd": apart, "seconds": runs["seconds"].mean()})
    return pd.DataFrame(rows)


def _rows(spec: RunSpec, folder: Path, corpus: Path) -> Iterator[dict[str, Any]]:
    status, evaluations = files.read_json(folder / "status.json"), files.read_jsonl(folder / "evals.jsonl")
    held_out = open_corpus(corpus, spec.model.seq_length, spec.training.global_batch).validation
    numbers = validation_batches(len(held_out), spec.training.global_batch, max(BATCHES))
    each = batch_losses(folder / "export", (held_out.batch(batch) for batch in numbers))
    own = min(spec.training.eval_batches, len(numbers))  # of an evaluation in training
    estimates = [
        Estimate("last", k, float(np.mean([e["loss"] for e in evaluations[-k:]])), k * own)
        for k in LAST
        if k <= len(evaluations)
    ]
    amounts = (*(n for n in BATCHES if n < len(each)), min(len(each), max(BATCHES)))
    estimates += [Estimate("batches", n, float(each[:n].mean()), n) for n in amounts]
    per_batch = status["evaluation_seconds"] / (len(evaluations) * own)
    for estimate in estimates:
        seconds = status["training_seconds"] + per_batch * estimate.batches
        named = {"method": spec.method.name, "title": spec.method.title, "seed": spec.seed}
        yield {**named, "kind": estimate.kind, "amount": estimate.amount, "loss": estimate.loss, "seconds": seconds}


def batch_losses(export: Path, batches: Iterator[np.ndarray]) -> np.ndarray:
    """Mean loss (nats a token) of each batch of sequences, [sequences, seq_length + 1] each, of an exported model."""
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(export, local_files_only=True, dtype=torch.float32).eval()
    with torch.inference_mode():
        found = []
        for batch in batches:
            tokens = torch.from_numpy(batch)
            logits = model(tokens[:, :-1]).logits
            found.append(float(cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())))
    return np.array(found)
