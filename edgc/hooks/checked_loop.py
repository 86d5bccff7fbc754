"""A model whose gradients are known, under anybody's exchange, on a few gloo ranks of this machine: `edgc.hooks.check`.

The loss is the sum of parameter × wanted gradient, so that backward delivers exactly what a step asks for.
"""

from __future__ import annotations

import os
import pickle
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import torch
import torch._dynamo  # DDP would import it on every rank
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from edgc.core.base.settings import cut

Kind = Literal["hook", "register", "reduce_scatter"]
#: What all ranks' gradients are in a step: standard normal elements, but where a word says otherwise. `constant`: the
#: same in every step; `nan`, `inf`: one element of `SPECIAL` on the last rank; `unused`: `SPECIAL` there; `large`:
#: 40000.
Step = Literal["constant", "fresh", "zeros", "nan", "inf", "unused", "large"]
PARTS = ({"wide": (16, 40), "bias": (16,)}, {"tall": (48, 12), "square": (24, 24), "scale": (7,), "last": (9, 30)})
SHAPES = {name: shape for part in PARTS for name, shape in part.items()}
SPECIAL = "square"
BUCKET_MB = 0.003  # so that there are several


@dataclass(frozen=True)
class Target:
    """What is checked. `what`: a hook (state, bucket), a function that takes the model, or one that gives FSDP2's
    reduce-scatter; `state`: makes a hook's state on each rank."""

    what: Callable[..., Any]
    kind: Kind
    fsdp: bool = False
    state: Callable[[], Any] | None = None
    in_turn: bool = True  #: whether DDP waits for a hook's average before it hands over the next bucket


@dataclass(frozen=True)
class CheckedRun:
    """Steps of one start of all ranks."""

    steps: Sequence[Step]
    first: int = 0  #: number of the first one
    dtype: torch.dtype = torch.float32
    rebuild: bool = False  #: whether DDP makes new buckets after its first step
    save_after: int | None = None  #: a step after which the state is saved
    load: Sequence[bytes | None] = ()  #: states by rank to begin with


@dataclass
class RankTrace:
    """What one rank saw."""

    averages: Tensor | None = None  #: (steps, elements), float64
    state: bytes | None = None  #: saved; None: there is none
    unsaved: str = ""  #: why the state cannot be saved
    error: str = ""
    at: float = 0.0  #: when it ended


def gradients(step: Step, number: int, rank: int, ranks: int) -> dict[str, Tensor]:
    """By name, float32: what a rank has in this step. A parameter that is not used is left out."""
    draw = torch.Generator().manual_seed(1_000_003 * rank + (0 if step == "constant" else 1 + number))
    found = {name: torch.randn(shape, generator=draw) for name, shape in SHAPES.items()}
    if step in ("zeros", "large"):
        found = {name: torch.full_like(each, 40000.0 if step == "large" else 0.0) for name, each in found.items()}
    if rank == ranks - 1 and step in ("nan", "inf"):
        found[SPECIAL].view(-1)[5] = float(step)
    if rank == ranks - 1 and step == "unused":
        del found[SPECIAL]
    return found


def flat(values: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
    """All parameters' values, rounded to `dtype`, as float64; zeros of what is not used."""
    parts = [values.get(name, torch.zeros(shape)).to(dtype).double().reshape(-1) for name, shape in SHAPES.items()]
    return torch.cat(parts)


def on_ranks(target: Target, run: CheckedRun, folder: Path, ranks: int, seconds: float) -> list[RankTrace]:
    """Each rank's trace. One that gave no answer says so; ranks that wait for one that failed are ended."""
    place = folder / f"{next(_NUMBERS)}"
    place.mkdir()
    fork = get_context("fork")
    processes = [fork.Process(target=_rank, args=(target, run, place, rank, ranks)) for rank in range(ranks)]
    for process in processes:
        process.start()
    ends = time.monotonic() + seconds
    while (alive := next((p for p in processes if p.is_alive()), None)) and time.monotonic() < ends:
        alive.join(0.02)
        if any(process.exitcode for process in processes):
            ends = min(ends, time.monotonic() + 5)
    for process in processes:
        process.kill()
        process.join()
    files = [place / f"{rank}.trace" for rank in range(ranks)]
    silent = RankTrace(error=f"no answer in {seconds:.0f} s", at=time.time())
    return [pickle.loads(file.read_bytes()) if file.exists() else silent for file in files]


_NUMBERS = count()


def _rank(target: Target, run: CheckedRun, place: Path, rank: int, ranks: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trace = RankTrace()
    try:
        dist.init_process_group("gloo", init_method=f"file://{place.resolve()}/store", rank=rank, world_size=ranks)
        _train(target, run, trace, rank, ranks)
    except BaseException as error:
        trace.error = _said(error)
    trace.at = time.time()
    (place / f"{rank}.part").write_bytes(pickle.dumps(trace))
    (place / f"{rank}.part").rename(place / f"{rank}.trace")
    if not trace.error:
        with suppress(Exception):
            dist.barrier()  # nobody leaves while others still talk
    os._exit(bool(trace.error))


def _said(error: BaseException) -> str:
    return cut(f"{type(error).__name__}: {error}", 160)


def _train(target: Target, run: CheckedRun, trace: RankTrace, rank: int, ranks: int) -> None:
    loop = _Loop(target, run, run.load[rank] if run.load else None)
    averages = []
    for number, step in enumerate(run.steps, start=run.first):
        averages.append(loop.step(gradients(step, number, rank, ranks)))
        if number == run.save_after:
            try:
                trace.state = loop.saved()
            except Exception as error:
                trace.unsaved = _said(error)
    trace.averages = torch.stack(averages)


class _Part(nn.Module):
    def __init__(self, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.ones(shape, dtype=dtype)))

    def forward(self, wanted: dict[str, Tensor]) -> Tensor:
        pairs = [(parameter, wanted[name]) for name, parameter in self.named_parameters() if name in wanted]
        return torch.stack([(p * g.to(p.dtype)).sum() for p, g in pairs]).sum()


class _Model(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.parts = nn.ModuleList(_Part(shapes, dtype) for shapes in PARTS)

    def forward(self, wanted: dict[str, Tensor]) -> Tensor:
        return torch.stack([part(wanted) for part in self.parts]).sum()


class _Loop:
    """The model under the exchange. What the exchange keeps is `kept`: a hook's state, or what was returned."""

    def __init__(self, target: Target, run: CheckedRun, saved: bytes | None) -> None:
        self.model = model = _Model(run.dtype)
        make = target.state or (lambda: None)
        if target.fsdp:
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            for part in model.parts:
                fully_shard(part, mesh=mesh)
            self.wrapped: Any = fully_shard(model, mesh=mesh)
        else:
            self.wrapped = DistributedDataParallel(
                model,
                bucket_cap_mb=BUCKET_MB,  # type: ignore[arg-type]
                find_unused_parameters=not run.rebuild,
            )
        if target.kind == "reduce_scatter":
            made = self.kept = [_restored(target.what, saved, at) for at in range(len(PARTS))]
            for part, each in zip(model.parts, made, strict=True):
                part.set_custom_reduce_scatter(each)  # type: ignore[operator]
        elif target.kind == "register":
            self.kept = _restored(partial(target.what, self.wrapped), saved)
        else:
            self.kept = _restored(make, saved)
            self.wrapped.register_comm_hook(self.kept, _hook(target))

    def step(self, wanted: dict[str, Tensor]) -> Tensor:
        """The averages (elements,), float64."""
        self.model.zero_grad(set_to_none=True)
        self.wrapped(wanted).backward()
        found = {name.rpartition(".")[2]: parameter.grad for name, parameter in self.model.named_parameters()}
        return flat({n: getattr(g, "full_tensor", lambda g=g: g)().detach() for n, g in found.items() if g is not None})

    def saved(self) -> bytes | None:
        """What a checkpoint would hold of this rank's exchange; None: nothing."""
        kept = self.kept
        if isinstance(kept, list):
            return pickle.dumps([vars(each) for each in kept])
        if kept is None:
            return None
        return pickle.dumps((True, kept.state_dict()) if hasattr(kept, "state_dict") else (False, kept))


def _hook(target: Target) -> Callable[[Any, Any], Any]:
    """The hook by another name, for DDP refuses some without NCCL by theirs.

    In turn: what a hook starts in a future's callback has no order under gloo; under NCCL it has that of buckets.
    """

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations with its own types
        future = target.what(state, bucket)
        if target.in_turn:
            future.wait()
        return future

    return hook


def _restored(make: Callable[[], Any], saved: bytes | None, at: int | None = None) -> Any:
    if saved is None:
        return make()
    if at is not None:
        made = make()
        vars(made).update(pickle.loads(saved)[at])
        return made
    by_dict, state = pickle.loads(saved)
    if not by_dict:
        return state
    made = make()
    made.load_state_dict(state)
    return made
