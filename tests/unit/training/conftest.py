"""A corpus that no text is needed for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgc.core.base.files import write_json


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Tokens that repeat, so that there is something to learn."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    tokens = (np.arange(20_000) % 97).astype("<u2")
    for split in ("train", "validation"):
        tokens.tofile(folder / f"{split}.bin")
    splits = {split: {"tokens": len(tokens)} for split in ("train", "validation")}
    write_json(folder / "manifest.json", {"vocab_size": 512, "settings": {"name": "x"}, "splits": splits})
    return folder
