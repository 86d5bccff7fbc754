"""Names of panels and legends: of hardware only what tells one kind from the others."""

from __future__ import annotations

import pandas as pd

from edgc.report.style import Look, look
from edgc.report.timed_steps import spoken

FILLS = ("", "white", "#BBBBBB", "#FFE680")  #: markers' fill, by device; the first is the method's colour


def by_hardware(data: pd.DataFrame) -> pd.Series:
    """The panel of every row: the model, and the hardware where that model ran on several kinds of it.

    Figures about time use it: times of several kinds of hardware do not stand in one list.
    """
    apart = pd.concat([own.map(differences(own)) for _, own in data.groupby("model")["device"]] or [data["device"]])
    return data["model"] + apart.fillna("").map(lambda what: f", {what}" if what else "")


def by_rate(data: pd.DataFrame) -> pd.Series:
    """The panel of every row: the rate of the links, with the model where there are several."""
    rate = data["rate"].map(spoken)
    return data["model"] + ", " + rate if data["model"].nunique() > 1 else rate


def labels(rows: pd.DataFrame, devices: pd.Series) -> pd.Series:
    """Each row's name in a legend: its title, and its hardware as far as that differs from the others' (`devices`)."""
    apart = differences(devices)
    return rows["title"] + [f", {apart[device]}" if apart.get(device) else "" for device in rows["device"]]


def looks_of(rows: pd.DataFrame) -> dict[str, Look]:
    """The look of every `label`: its method's, with a fill of its own for each further kind of hardware."""
    devices = list(rows["device"].unique()) if "device" in rows else [None]
    found = {}
    for row in rows.drop_duplicates("label").to_dict("records"):
        found[row["label"]] = look(row["method"])._replace(fill=FILLS[devices.index(row.get("device")) % len(FILLS)])
    return found


def differences(devices: pd.Series) -> dict[str, str]:
    """By kind of hardware those of its parts, which a semicolon separates, that not all kinds share."""
    parts = {device: device.split("; ") for device in devices.dropna().unique()}
    shared = set.intersection(*map(set, parts.values())) if parts else set()
    return {device: "; ".join(part for part in own if part not in shared) for device, own in parts.items()}
