"""Where authors' public code departs from their paper, and what this suite does instead."""

from __future__ import annotations

import pandas as pd

from edgc.report.study import Study

TITLE = "Papers, their released code, and this suite"

CAPTION = {
    "Topic": "part of the method",
    "Paper": "what the paper describes",
    "Released code": "what the authors' public snapshot does. EDGC's, as it is, cannot have produced the paper's "
    "numbers",
    "Consequence": "what follows for the printed results",
    "Here": "what this suite does. Method edgc follows the paper, edgc_released the released code as it is meant, "
    "edgc_loss a vendor's port of it; tagc and tagc_released likewise",
    "Source": "our reading of the snapshot, in configs/reference; nothing here was measured",
}


def build(study: Study) -> pd.DataFrame:
    """One row per deviation: method, topic, paper, released, consequence, here."""
    papers = (study.reference, *study.others)
    return pd.DataFrame([{"method": paper.method} | each.model_dump() for paper in papers for each in paper.deviations])


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read."""
    return table.rename(
        columns={
            "method": "Method",
            "topic": "Topic",
            "paper": "Paper",
            "released": "Released code",
            "consequence": "Consequence",
            "here": "Here",
        }
    )
