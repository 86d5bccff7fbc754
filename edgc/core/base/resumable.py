"""Saving and restoring what an object keeps, by declaration: one mechanism for whatever a resumed run needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar


class Resumable:
    """`kept` names what a resumed run needs: the attribute `_name` is saved as `name`.

    Numbers, text, None, tensors, lists and dictionaries of them, and what has a `state_dict` of its own.
    """

    kept: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` restores bit for bit. Tensors are not copied."""
        own = {name: getattr(self, f"_{name}") for name in self.kept}
        return {n: value.state_dict() if hasattr(value, "state_dict") else _each(value) for n, value in own.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a copy of what `state_dict` gave. What an older checkpoint lacks stays as it is."""
        assert not (unknown := state.keys() - {*self.kept}), f"{type(self).__name__} keeps no {unknown}"
        for name in state:
            if hasattr(own := getattr(self, f"_{name}"), "load_state_dict"):
                own.load_state_dict(state[name])
            else:
                setattr(self, f"_{name}", _each(state[name], lambda tensor: tensor.clone()))

    def move_kept(self, device: Any) -> None:
        """Put the tensors that were restored onto the device that they are for: a checkpoint is read to the host."""
        for name in self.kept:
            setattr(self, f"_{name}", _each(getattr(self, f"_{name}"), lambda tensor: tensor.to(device)))


def _each(value: Any, change: Callable[[Any], Any] = lambda tensor: tensor) -> Any:
    """A copy of the containers, in which tensors are changed."""
    if isinstance(value, Mapping):
        return {key: _each(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_each(each, change) for each in value]
    return change(value) if hasattr(value, "clone") else value
