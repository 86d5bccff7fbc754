"""Where authors' public code departs from their paper, and what this suite does instead."""

from __future__ import annotations

import pandas as pd

from edgc.report.study import Study
from edgc.report.table import Column, Table


def build(study: Study) -> pd.DataFrame:
    """One row per deviation: method, topic, paper, released, consequence, here."""
    papers = (study.reference, *study.others)
    return pd.DataFrame([{"method": paper.method} | each.model_dump() for paper in papers for each in paper.deviations])


TABLE = Table(
    "Papers, their released code, and this suite",
    build,
    {
        Column("Method", "method"): "",
        Column("Topic", "topic"): "part of the method",
        Column("Paper", "paper"): "what the paper describes",
        Column("Released code", "released"): "what the authors' public snapshot does. EDGC's, as it is, cannot have "
        "produced the paper's numbers",
        Column("Consequence", "consequence"): "what follows for the printed results",
        Column("Here", "here"): "what this suite does. Method edgc follows the paper, edgc_released the released code "
        "as it is meant, edgc_loss a vendor's port of it; tagc and tagc_released likewise",
        "Source": "our reading of the snapshot, in configs/reference; nothing here was measured",
    },
)
