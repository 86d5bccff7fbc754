"""Names of hardware in panels and legends: only what tells one kind from the others."""

from __future__ import annotations

import pandas as pd


def by_hardware(data: pd.DataFrame) -> pd.Series:
    """The panel of every row: the model, and the hardware where that model ran on several kinds of it.

    Figures about time use it: times of several kinds of hardware do not stand in one list.
    """
    apart = pd.concat([own.map(differences(own)) for _, own in data.groupby("model")["device"]] or [data["device"]])
    return data["model"] + apart.fillna("").map(lambda what: f", {what}" if what else "")


def named_by_hardware(title: str, device: str, devices: pd.Series) -> str:
    """A line's name in a legend: its title, and its hardware as far as that differs from the others' (`devices`)."""
    return ", ".join(filter(None, (title, differences(devices).get(device))))


def differences(devices: pd.Series) -> dict[str, str]:
    """By kind of hardware those of its parts, which a semicolon separates, that not all kinds share."""
    parts = {device: device.split("; ") for device in devices.dropna().unique()}
    shared = set.intersection(*map(set, parts.values())) if parts else set()
    return {device: "; ".join(part for part in own if part not in shared) for device, own in parts.items()}
