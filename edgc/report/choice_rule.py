"""Which method to take on links of a rate: the one decision that table `choice` and the site's answers rest on."""

from __future__ import annotations

import pandas as pd

from edgc.report.links_in_words import FASTEST, PAYS
from edgc.report.timed_steps import DENSE, OTHER


def taken(rows: pd.DataFrame) -> pd.Series | None:
    """Of one rate's rows of table `links`: the fastest method that pays and whose loss is known to be kept.

    Where there is none, the fastest dense method, which is what a user has without compression; None without one.
    """
    paying = rows[rows["preserved"].astype(bool) & (rows["role"] == OTHER) & (rows["verdict"] == PAYS)]
    fastest = rows[rows["verdict"] == FASTEST]
    dense = fastest if len(fastest) else rows[rows["role"] == DENSE]
    among = paying if len(paying) else dense
    return None if among.empty else among.sort_values("step_s", kind="stable").iloc[0]
