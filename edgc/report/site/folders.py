"""Folders of what is published. Without pandas: `edgc plan` starts fast."""

from __future__ import annotations

from pathlib import Path

from edgc.core.base.errors import UserError

OWN = {"site"}  #: folders that hold no experiment


def folders(root: Path) -> dict[str, Path]:
    """Every folder under `results/published` that holds tables, by the experiment's name; empty if there is none."""
    tops = [path for path in sorted(root.glob("*")) if path.is_dir() and path.name not in OWN]
    leaves = [leaf for top in tops for leaf in ([top] if _holds(top) else filter(_holds, sorted(top.glob("*/"))))]
    return {leaf.relative_to(root).as_posix(): leaf for leaf in leaves}


def some(root: Path) -> dict[str, Path]:
    """The same. Raises `UserError` if there is none."""
    if found := folders(root):
        return found
    raise UserError(f"{root}: holds no published experiment; `edgc publish EXPERIMENT` copies one there")


def _holds(folder: Path) -> bool:
    return (folder / "tables").is_dir() or any(folder.glob("*.csv"))
