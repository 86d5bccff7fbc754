"""Saving and restoring what an object keeps, by declaration: one mechanism for whatever a resumed run needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class Kept:
    """`kept` names what a resumed run needs: the attribute `_name` is saved as `name`.

    Numbers, text, None, tensors, and lists and dictionaries of them.
    """

    kept: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` restores bit for bit. Tensors are not copied."""
        return {name: _copied(getattr(self, f"_{name}"), clone=False) for name in self.kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a copy of what `state_dict` gave. What an older checkpoint lacks stays as it is."""
        assert not state.keys() - {*self.kept}, f"{type(self).__name__} knows no {state.keys() - {*self.kept}}"
        for name in self.kept:
            if name in state:
                setattr(self, f"_{name}", _copied(state[name], clone=True))


def _copied(value: Any, clone: bool) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(each, clone) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(each, clone) for each in value]
    return value.clone() if clone and hasattr(value, "clone") else value
