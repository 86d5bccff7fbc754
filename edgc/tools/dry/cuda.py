"""`torch.cuda` of devices that are not there: what the product, megatron-core and Triton ask of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from edgc.tools.dry.data_sheets import DeviceModel
from edgc.tools.dry.device_memory import DeviceMemory
from edgc.tools.dry.notes import HostWait, Notes


class Stream:
    """A stream: work is done in the order of the calls, on all streams."""

    def __init__(self, device: Any = None, priority: int = 0, **unused: Any) -> None:
        self.device, self.priority, self.cuda_stream = device, priority, 0

    def wait_stream(self, stream: Stream) -> None:
        """Nothing: see above."""

    def wait_event(self, event: Any) -> None:
        """Nothing: see above."""

    def synchronize(self) -> None:
        torch.cuda.synchronize()


class Cuda:
    """Stands in for `torch.cuda`, with `count` devices of a model; this process uses number `index`."""

    def __init__(self, model: DeviceModel, count: int, index: int, notes: Notes, memory: DeviceMemory) -> None:
        self.model, self.count, self.index, self.notes, self.memory = model, count, index, notes, memory
        self.ticks = 0  # of the clock that events read: a tick an event
        self.finished = 0  # ticks that a synchronisation has waited for
        self._generators = tuple(torch.Generator() for _ in range(count))

    def install(self) -> None:
        """From now on, for the life of the process."""
        replaced: dict[str, Any] = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "init": lambda: None,
            "_lazy_init": lambda: None,
            "_lazy_call": lambda function, **unused: function(),
            "device_count": lambda: self.count,
            "current_device": lambda: self.index,
            "set_device": self._set_device,
            "get_device_name": lambda device=None: f"{self.model.name} (nothing is computed)",
            "get_device_capability": lambda device=None: self.model.capability,
            "get_device_properties": self._properties,
            "is_bf16_supported": lambda *unused, **options: self.model.capability >= (8, 0),
            "synchronize": self._synchronize,
            "Event": _event(self),
            "Stream": Stream,
            "stream": contextlib.nullcontext,  # with the stream: work is done in the order of the calls
            "current_stream": lambda device=None: Stream(device),
            "default_stream": lambda device=None: Stream(device),
            "default_generators": self._generators,
            "manual_seed": self._seed,
            "manual_seed_all": self._seed,
            "initial_seed": lambda: self._generators[self.index].initial_seed(),
            "get_rng_state": lambda device=None: self._generators[self.index].get_state(),
            "set_rng_state": lambda state, device=None: self._generators[self.index].set_state(state),
            "empty_cache": lambda: None,
            "memory_allocated": lambda device=None: self.memory.bytes,
            "max_memory_allocated": lambda device=None: self.memory.peak,
            "reset_peak_memory_stats": lambda device=None: self.memory.forget_peak(),
        }
        for name, value in replaced.items():
            assert hasattr(torch.cuda, name), name
            setattr(torch.cuda, name, value)
        plain = torch.Generator
        torch.Generator = lambda device="cpu": plain()  # type: ignore[assignment,misc]
        for name in ("manual_seed", "manual_seed_all", "get_rng_state", "set_rng_state"):
            setattr(torch.cuda.random, name, replaced[name])

    def _set_device(self, device: Any) -> None:
        index = torch.device(device).index if not isinstance(device, int) else device
        if index != self.index:
            raise self.notes.refuse(f"cuda:{index} is another process's device; this one has cuda:{self.index}")

    def _properties(self, device: Any = None) -> Any:
        m = self.model
        return SimpleNamespace(
            name=m.name, major=m.capability[0], minor=m.capability[1], total_memory=int(m.memory_gbyte * 1e9),
            multi_processor_count=m.multiprocessors, warp_size=32,
        )  # fmt: skip

    def _synchronize(self, device: Any = None) -> None:
        self.finished = self.ticks
        self.notes.waits.append(HostWait("synchronize", self.notes.now()))

    def _seed(self, seed: int) -> None:
        for generator in self._generators:
            generator.manual_seed(int(seed))


def _event(cuda: Cuda) -> Callable[..., Any]:
    class Event:
        """An event: what a GPU would refuse of it is refused."""

        def __init__(self, enable_timing: bool = False, blocking: bool = False, **unused: Any) -> None:
            self._timed, self._at = enable_timing, 0

        def record(self, stream: Any = None) -> None:
            cuda.ticks += 1
            self._at = cuda.ticks

        def wait(self, stream: Any = None) -> None:
            """Nothing: streams run in the order of the calls."""

        def query(self) -> bool:
            return self._at <= cuda.finished

        def synchronize(self) -> None:
            cuda._synchronize()

        def elapsed_time(self, end: Event) -> float:
            """Milliseconds: a thousandth of one for each event in between."""
            for which, event in (("begin", self), ("end", end)):
                if not event._timed:
                    raise cuda.notes.refuse(f"elapsed_time: the {which} was made without enable_timing=True")
                if not event._at:
                    raise cuda.notes.refuse(f"elapsed_time: the {which} was not recorded")
                if event._at > cuda.finished:
                    raise cuda.notes.refuse(f"elapsed_time: the device has not come to the {which}; synchronise first")
            return (end._at - self._at) / 1e3

    return Event
