"""NCCL without a network: a process group that refuses what NCCL refuses, and notes every call."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import FakeWork, HashStore
from torch.cuda import nccl

from edgc.core.base.files import atomic_open
from edgc.tools.dry.notes import Collective, Notes
from edgc.tools.dry.tensors import on_device

NAME = "dry"
#: What NCCL can carry. It has no int16, bool and complex types.
TYPES = {
    torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
}  # fmt: skip
BITWISE = {"BAND", "BOR", "BXOR"}
SECONDS = 600.0  #: for an answer: of a process that imports torch beside others on a slow machine


class DryGroup(dist.ProcessGroup):
    """This rank's end of a group; `ranks`: global ranks. `eager`: NCCL connects when the group is made."""

    def __init__(self, rank: int, size: int, ranks: tuple[int, ...], notes: Notes, eager: bool) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.ranks, self._notes = ranks, notes
        self._connected = eager

    def getBackendName(self) -> str:
        return NAME

    def _note(
        self,
        operation: str,
        handed: Sequence[torch.Tensor],
        *outputs: torch.Tensor,
        reduction: Any = None,
        peer: int | None = None,
        splits: Any = None,
    ) -> FakeWork:
        """Note a call that hands in one tensor. Raises `Refused` for what NCCL would refuse, or hang or crash by."""
        (tensor,) = handed
        self._check(operation, *outputs, tensor)
        name = None if reduction is None else str(getattr(reduction, "op", reduction)).rpartition(".")[2]
        if name in BITWISE:
            raise self._notes.refuse(f"{operation}: NCCL has no reduction {name}")
        first, self._connected = not self._connected, True
        self._notes.collectives.append(
            Collective(
                operation, self.ranks[self.rank()], self.ranks, tensor.numel(), tensor.numel() * tensor.element_size(),
                str(tensor.dtype).removeprefix("torch."), name, None if peer is None else self.ranks[peer],
                splits, BATCH.number, first, self._notes.now(),
            )
        )  # fmt: skip
        return FakeWork()

    def _check(self, operation: str, *tensors: torch.Tensor) -> None:
        """What NCCL wants of tensors. Raises `Refused`."""
        refuse = self._notes.refuse
        for tensor in tensors:
            if not on_device(tensor):
                raise refuse(f"{operation}: NCCL was given a tensor on {tensor.device}, of shape {tuple(tensor.shape)}")
            if tensor.device.index != torch.cuda.current_device():
                raise refuse(
                    f"{operation}: tensor on {tensor.device}, but this process has {torch.cuda.current_device()}"
                )
            if not tensor.is_contiguous():
                raise refuse(f"{operation}: strides {tensor.stride()} of {tuple(tensor.shape)} are not contiguous")
            if tensor.dtype not in TYPES:
                raise refuse(f"{operation}: NCCL has no type {tensor.dtype}")
        if len(kinds := {tensor.dtype for tensor in tensors}) > 1:
            raise refuse(f"{operation}: tensors of {', '.join(sorted(map(str, kinds)))}; one type is wanted")

    def _check_sizes(self, operation: str, found: int, wanted: int) -> None:
        if found != wanted:
            raise self._notes.refuse(f"{operation}: the output has {found} elements, {self.size()} ranks fill {wanted}")

    # torch.distributed calls these by the names of its C++ interface
    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> FakeWork:
        return self._note("all_reduce", tensors, reduction=options.reduceOp if options else "SUM")

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> FakeWork:
        return self._note("broadcast", tensors, peer=options.rootRank)

    def reduce(self, tensors: list[torch.Tensor], options: Any) -> FakeWork:
        return self._note("reduce", tensors, reduction=options.reduceOp, peer=options.rootRank)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, options: Any = None) -> FakeWork:
        self._check_sizes("all_gather", output.numel(), tensor.numel() * self.size())
        return self._note("all_gather", [tensor], output)

    def allgather(
        self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any = None
    ) -> FakeWork:
        (parts,) = outputs
        for part in parts:
            self._check_sizes("all_gather", part.numel() * self.size(), tensors[0].numel() * self.size())
        return self._note("all_gather", tensors, *parts)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, options: Any = None) -> FakeWork:
        self._check_sizes("reduce_scatter", output.numel() * self.size(), tensor.numel())
        return self._note("reduce_scatter", [tensor], output, reduction=options.reduceOp if options else "SUM")

    def all_to_all_single(
        self, output: torch.Tensor, tensor: torch.Tensor, received: list[int], sent: list[int], options: Any = None
    ) -> FakeWork:
        if not received and not sent:
            self._check_sizes("all_to_all", output.numel(), tensor.numel())
            return self._note("all_to_all", [tensor], output)
        for what, parts, whole in (("sent", sent, tensor), ("received", received, output)):
            if sum(parts) != len(whole) or len(parts) != self.size():
                raise self._notes.refuse(f"all_to_all: {what} {parts} do not add up to {len(whole)} for {self.size()}")
        return self._note("all_to_all", [tensor], output, splits=(tuple(sent), tuple(received)))

    def barrier(self, opts: Any = None) -> FakeWork:
        token = torch.empty(1, device=torch.device("cuda", torch.cuda.current_device()))
        return self._note("barrier", [token])

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> FakeWork:
        return self._note("send", tensors, peer=peer)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> FakeWork:
        return self._note("recv", tensors, peer=peer)


def _refusing(name: str) -> Callable[..., Any]:
    def call(group: DryGroup, *unused: Any, **unused_options: Any) -> Any:
        raise group._notes.refuse(f"{name}: the dry run does not know this call; write it into {__name__}")

    return call


for _name in (
    "_allgather_base", "_reduce_scatter_base", "alltoall_base", "all_gather_single_coalesced", "allgather_coalesced",
    "allreduce_coalesced", "alltoall", "gather", "recv_anysource", "reduce_scatter", "reduce_scatter_single_coalesced",
    "scatter", "monitored_barrier",
):  # fmt: skip
    setattr(DryGroup, _name, _refusing(_name))  # else torch's own would do nothing, in silence


class _Batch:
    """The number of the batch of sends and receives that is being launched."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._count = itertools.count(1)

    def run(self, plain: Callable[[Any], Any], operations: Any) -> Any:
        self.number = next(self._count)
        try:
            return plain(operations)
        finally:
            self.number = None


BATCH = _Batch()


class Mail:
    """A folder through which processes tell each other Python objects, never data of a step.

    `stands_for`: by rank, the rank whose process answers.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def begin(self, folder: Path, stands_for: Mapping[int, int]) -> None:
        """Exchange by another folder from now on."""
        self._folder, self._stands_for = folder, stands_for
        self._sent: Counter[str] = Counter()
        folder.mkdir(parents=True, exist_ok=True)

    def fail(self) -> None:
        """Let nobody wait for this rank."""
        (self._folder / "failed").touch()

    def exchange(self, group: Sequence[int], own: Any) -> list[Any]:
        """Everybody's object, in the order of the group."""
        key = hashlib.sha256(repr(sorted(group)).encode()).hexdigest()[:12]
        self._sent[key] += 1
        folder = self._folder / f"{key}-{self._sent[key]}"
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_open(folder / str(self._rank), "wb") as stream:
            pickle.dump(own, stream)
        return [
            own if self._stands_for[rank] == self._rank else self._wait(folder, self._stands_for[rank])
            for rank in group
        ]

    def _wait(self, folder: Path, rank: int) -> Any:
        path = folder / str(rank)
        deadline = time.monotonic() + SECONDS
        while not path.exists():
            if (self._folder / "failed").exists() or time.monotonic() > deadline:
                raise RuntimeError(f"rank {rank} does not answer: it failed, or it does not make this call")
            time.sleep(0.01)
        return pickle.loads(path.read_bytes())


def install(rank: int, world: int, notes: Notes, mail: Mail) -> None:
    """Make `torch.distributed` build such groups where NCCL is asked for. For the life of the process."""
    eager = [False]

    def create(common: Any, options: Any) -> DryGroup:
        ranks = tuple(common.global_ranks_in_group) or tuple(range(world))
        return DryGroup(common.group_rank, common.group_size, ranks, notes, eager[0])

    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cuda"])
    begin, make, p2p = dist.init_process_group, dist.new_group, dist.batch_isend_irecv

    def init_process_group(backend: str | None = None, *, device_id: Any = None, **options: Any) -> None:
        if backend != "nccl":
            raise notes.refuse(f"init_process_group: backend {backend} for a job on GPUs")
        eager[0] = device_id is not None
        begin(
            NAME,
            store=HashStore(),
            rank=rank,
            world_size=world,
            timeout=options.get("timeout"),
        )

    def new_group(
        ranks: Any = None, timeout: Any = None, backend: str | None = None, *more: Any, **options: Any
    ) -> Any:
        if backend == "gloo" and ranks is not None and len(ranks) > 1:
            raise notes.refuse("new_group: a gloo group in a job on GPUs: nothing uses it, and ports and threads do")
        options.pop("pg_options", None)
        return make(ranks, timeout, NAME, **options)

    def all_gather_object(found: list[Any], own: Any, group: Any = None) -> None:
        found[:] = mail.exchange(dist.get_process_group_ranks(group), own)

    replaced: dict[str, Any] = {
        "init_process_group": init_process_group,
        "new_group": new_group,
        "all_gather_object": all_gather_object,
        "batch_isend_irecv": lambda operations: BATCH.run(p2p, operations),
        "get_backend": lambda group=None: "nccl",
        "get_backend_config": lambda group=None: "cuda:nccl",
        "is_nccl_available": lambda: True,
    }
    for name, function in replaced.items():
        for module in (dist, c10d):
            setattr(module, name, function)
    nccl.version = lambda: (2, 27, 0)  # asked for when a call is logged
