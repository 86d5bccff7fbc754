"""What a hook believes of a model's trained parameters, and what all ranks must agree on.

One description (name, shape, memory layout, precision) serves the comparison of ranks when `compress` is called, the
check of each step, and the refusal of a foreign state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from edgc.core.base.errors import UserError

T = TypeVar("T")

#: What wrappers put into a parameter's name: torch.compile, and activation checkpoints.
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


class Believed(NamedTuple):
    """A parameter's gradient as it is exchanged: of a complex one, real and imaginary parts are the last dimension."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]  #: in the memory of a bucket, which has no gaps
    dtype: torch.dtype

    @property
    def contiguous(self) -> bool:
        """Whether its memory is in the order of its elements."""
        return torch.empty_strided(self.shape, self.stride, device="meta").is_contiguous()


def believed(name: str, parameter: Tensor) -> Believed:
    """What a hook believes of this parameter now."""
    like = torch.empty_like(parameter, device="meta")
    if like.stride() != parameter.stride():  # it has gaps or overlaps: DDP's buckets hold it in the order of elements
        like = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
    real = torch.view_as_real(like) if like.is_complex() else like
    return Believed(plain_name(name), tuple(real.shape), real.stride(), parameter.dtype)


def plain_name(name: str) -> str:
    """A parameter's name in the bare model, so that states and random numbers do not depend on wrappers."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def plain_names(state: Any) -> Any:
    """A copy of a state's containers in which keys are bare names."""
    if isinstance(state, Mapping):
        return {plain_name(key) if isinstance(key, str) else key: plain_names(each) for key, each in state.items()}
    return [plain_names(each) for each in state] if isinstance(state, list | tuple) else state


def real(tensor: Tensor) -> Tensor:
    """A flat view of real numbers."""
    return torch.view_as_real(tensor).view(-1) if tensor.is_complex() else tensor.view(-1)


#: Trained parameters by identity: name, and whatever else must not change.
Trained = dict[Hashable, tuple[str, Any]]


class Beliefs:
    """Which parameters are exchanged. `look`: those that the model trains now. `how`: how a change reaches the hook."""

    def __init__(self, exchanged: Trained, look: Callable[[], Trained], how: str) -> None:
        self._exchanged, self._look, self._how = exchanged, look, how
        self.check()

    def check(self) -> None:
        """Raise `UserError` unless the trained parameters are those that the exchange has, as it knows them.

        A model of which nothing is trained passes: nothing of it is averaged.
        """
        now, known = self._look(), self._exchanged
        if not now or now == known:
            return
        changed = {
            "trained, but not exchanged": now.keys() - known.keys(),
            "exchanged, but not trained": known.keys() - now.keys(),
            "replaced, or of another name, shape, memory layout or precision": {
                key for key in now.keys() & known.keys() if now[key] != known[key]
            },
        }
        found = [f"{what}: {listed([(known | now)[key][0] for key in keys])}" for what, keys in changed.items() if keys]
        raise UserError(f"model: the exchange knows other parameters; {'; '.join(found)}; {self._how}")


class Guard:
    """A module's forward pre-hook. Copies and pickles of the module have one that does nothing."""

    def __init__(self, check: Callable[[], None] | None = None) -> None:
        self._check = check

    def __call__(self, module: nn.Module, arguments: Any) -> None:
        if self._check is not None and not torch.compiler.is_compiling() and torch.is_grad_enabled():
            self._check()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Guard, ()


def gathered(of: Any, group: dist.ProcessGroup, device: torch.device) -> list[Any]:
    """What every rank has, in rank order. `device`: the model's, which need not be the current one. Collective."""
    every: list[Any] = [None] * dist.get_world_size(group)
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        dist.all_gather_object(every, of, group=group)
    return every


def alike(groups: Sequence[dist.ProcessGroup], device: torch.device, look: Callable[[], T]) -> T:
    """What `look` gives. What it refuses on one rank, all refuse that the groups connect: none waits for another.

    Collective over each of `groups`, one after another; of none where it is no model that has ranks.
    """
    found, refusal, told = None, None, ""
    try:
        found = look()
    except UserError as error:
        refusal = error
        told = f"rank {dist.get_rank()} refuses: {error}" if groups else ""
    for group in groups:
        said = gathered(told, group, device)
        told = told or next(filter(None, said), "")
    if refusal is not None or told:
        raise refusal or UserError(told)
    return cast(T, found)


ALIKE = "use the same arguments and the same model on all ranks"


def agree(
    facts: Mapping[str, Any], groups: Sequence[dist.ProcessGroup], device: torch.device, remedy: str = ALIKE
) -> None:
    """Raise `UserError` on all ranks, with both values, unless all ranks of each group have the same facts. Collective.

    Digests are compared first: the facts of a large model are long.
    """
    text = json.dumps(facts, sort_keys=True, default=str)
    found = [_difference(text, group, device) for group in groups]

    def look() -> None:
        if different := next(filter(None, found), None):
            raise UserError(f"ranks differ: {different}; {remedy}")

    alike(groups if len(groups) > 1 else (), device, look)  # all ranks of one group know


def _difference(text: str, group: dist.ProcessGroup, device: torch.device) -> str | None:
    if len(set(gathered(hashlib.sha256(text.encode()).hexdigest(), group, device))) == 1:
        return None
    first, *others = every = [json.loads(each) for each in gathered(text, group, device)]
    for fact in sorted(set().union(*every)):
        for rank, other in enumerate(others, start=1):
            if first.get(fact) != other.get(fact):
                return f"{fact} is {first.get(fact)} on rank 0, but {other.get(fact)} on rank {rank}"
    return None


def in_order(parameters: Iterable[Any]) -> dict[str, str]:
    """Facts about parameters (with `name`, `shape`, `dtype`), in the order in which they are exchanged."""
    return {f"parameter {at:06}": f"{p.name} {p.dtype} {p.shape}" for at, p in enumerate(parameters)}


def layout(parameter: Tensor) -> tuple[Any, ...]:
    """What a bucket's memory depends on."""
    return parameter.shape, parameter.stride(), parameter.dtype


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their full names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    first = sorted(names)[:5]
    return ", ".join(first) + (f" and {len(names) - len(first)} more" if len(names) > len(first) else "")
