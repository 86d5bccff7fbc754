"""`edgc bench noise`: spreads and costs known by hand, the loss of an export, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.report.noise_table import answers, pooled, present
from edgc.suite.config import load_experiment
from edgc.suite.training.bench import noise

EXPERIMENT = load_experiment("quality-noise").model_copy(update={"seeds": (1, 2, 3), "methods": ("dense", "topk_warm")})
#: Losses above 5 in the last evaluation and the one before, by seed; of an export's batches, the method's gap is 0.1.
FINAL = {"dense": (0.0, 0.1, 0.2), "topk_warm": (0.3, 0.3, 0.6)}
BEFORE = {"dense": (0.0, 0.1, 0.2), "topk_warm": (0.1, 0.4, 0.4)}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def exported(export: Path, batches: Iterator[np.ndarray]) -> np.ndarray:
        return np.array([0.1 * ("topk" in export.parent.name)] * len(list(batches)))

    monkeypatch.setattr(noise, "batch_losses", exported)
    for spec in EXPERIMENT.runs():
        folder, (name, seed) = tmp_path / "quality-noise/runs" / spec.run_id, (spec.method.name, spec.seed - 1)
        losses = (BEFORE[name][seed], FINAL[name][seed])
        files.append_jsonl(
            folder / "evals.jsonl", [{"step": 580 + 20 * i, "loss": 5 + x} for i, x in enumerate(losses)]
        )
        files.write_json(folder / "status.json", {"training_seconds": 90.0, "evaluation_seconds": 2.0})
        (folder / "trained").touch()
    return tmp_path


def test_spreads_and_seconds_by_hand(results: Path, corpus: Path) -> None:
    rows = noise.study(EXPERIMENT, results, corpus).set_index(["kind", "amount"])
    assert rows.loc[("last", 1), "sd"] == pytest.approx(np.std([0.3, 0.2, 0.4], ddof=1))
    assert rows.loc[("last", 2), "sd"] == pytest.approx(np.std([0.2, 0.25, 0.3], ddof=1))
    assert rows.loc[("unpaired", 1), "sd"] == pytest.approx(np.hypot(0.1, np.std([0.3, 0.3, 0.6], ddof=1)))
    assert ("last", 3) not in rows.index, "there are two evaluations"
    own = rows.loc[("last", 2), "seconds"] - rows.loc[("last", 1), "seconds"]
    assert rows.loc[("last", 1), "seconds"] == pytest.approx(90 + own), "an evaluation takes one second"
    assert rows.loc[("batches", 5), "sd"] == pytest.approx(0)
    assert rows.loc[("batches", 5), "seconds"] < rows.loc[("last", 1), "seconds"]


def test_cost_is_variance_times_seconds() -> None:
    rows = pd.DataFrame(
        [
            {"kind": kind, "amount": amount, "method": m, "title": m, "n": 6, "sd": sd, "seconds": seconds}
            for kind, amount, sd, seconds in (("unpaired", 1, 0.2, 90), ("last", 1, 0.1, 90), ("last", 2, 0.05, 100))
            for m in ("A", "B")
        ]
    )
    assert list(pooled(rows)["cost"]) == pytest.approx([4, 1, 0.25 * 100 / 90])
    assert list(present(rows)["Estimate"])[1:] == ["last evaluation", "mean of the last 2 evaluations"]
    pairing, paired, _ = answers(rows)
    assert "would take 4" in pairing
    assert "cost 0.278 (mean of the last 2 evaluations) to 1.00 (last evaluation) times" in paired


def test_without_three_seeds_there_is_no_spread(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(UserError, match=r"quality-noise: finished seeds by method: none; a spread needs at least 3 of"):
        noise.study(EXPERIMENT, tmp_path, corpus)


def test_the_loss_of_an_export_is_the_models_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2)).eval()
    model.save_pretrained(tmp_path)
    batches = np.random.RandomState(0).randint(0, 50, (2, 3, 9))
    found = noise.batch_losses(tmp_path, iter(batches))
    for batch, loss in zip(batches, found, strict=True):
        tokens = torch.from_numpy(batch)
        assert loss == pytest.approx(_likelihood(model, tokens), rel=1e-5)


def _likelihood(model: GPT2LMHeadModel, tokens: torch.Tensor) -> float:
    """Nats a token, one sequence and one place at a time."""
    with torch.no_grad():
        told = [
            -torch.log_softmax(model(one[None, : at + 1]).logits[0, -1], 0)[one[at + 1]]
            for one in tokens
            for at in range(len(one) - 1)
        ]
    return float(torch.stack(told).mean())
