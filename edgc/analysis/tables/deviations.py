"""Where the authors' public code departs from their paper, and what this suite does instead."""

from __future__ import annotations

import pandas as pd

from edgc.analysis.study import Study

TITLE = "The paper, its released code, and this suite"

CAPTION = {
    "Topic": "part of the method",
    "Paper": "what the paper describes",
    "Released code": "what the authors' public snapshot does. As it is, it cannot have produced the paper's numbers",
    "Consequence": "what follows for the printed results",
    "Here": "what this suite does. Method edgc follows the paper, edgc_released the released code as it is meant, "
    "edgc_loss a vendor's port of it",
    "Source": "our reading of the snapshot, in configs/reference; nothing here was measured",
}


def build(study: Study) -> pd.DataFrame:
    """One row per deviation: topic, paper, released, consequence, here."""
    return pd.DataFrame([deviation.model_dump() for deviation in study.reference.deviations])


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read."""
    return table.rename(
        columns={
            "topic": "Topic",
            "paper": "Paper",
            "released": "Released code",
            "consequence": "Consequence",
            "here": "Here",
        }
    )
