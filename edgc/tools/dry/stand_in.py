"""Everything together: this process becomes one rank of jobs on GPUs."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from edgc.core.base import files
from edgc.core.policies.stage_alignment import ExchangeCost
from edgc.suite.config import Cluster, RunSpec
from edgc.tools.dry import device_guard, process_group
from edgc.tools.dry.cuda import Cuda
from edgc.tools.dry.data_sheets import MODELS
from edgc.tools.dry.device_memory import CATEGORIES, DeviceMemory
from edgc.tools.dry.launches import Launches
from edgc.tools.dry.notes import Notes
from edgc.tools.dry.process_group import Mail
from edgc.tools.dry.tensors import Tensors


class StandIn:
    """A device, NCCL and Triton that compute nothing, for as many runs of a cluster as are begun."""

    def __init__(self, cluster: Cluster, model: str, rank: int) -> None:
        self._cluster, self.rank = cluster, rank
        self.notes, self.memory, self.mail = Notes(), DeviceMemory(), Mail(rank)
        self.tensors = Tensors(self.notes, self.memory, self._read)
        count = cluster.processes_per_node
        self.cuda = Cuda(MODELS[model], count, rank % count, self.notes, self.memory)
        self.launches = Launches(self.notes, self.memory, self.tensors)
        self.engine: Any = None  #: of the run
        self._width = 0  # of its layers

    def install(self) -> None:
        """From now on, for the life of the process."""
        environment = {"RANK": self.rank, "WORLD_SIZE": self._cluster.processes, "LOCAL_RANK": self.cuda.index}
        os.environ |= {name: str(value) for name, value in environment.items()}
        device_guard.install(self.cuda.count, self.cuda.index)
        self.cuda.install()
        self.launches.install(self.cuda.model.capability, self.cuda.index)
        self.tensors.install()
        process_group.install(self.rank, self._cluster.processes, self.notes, self.mail)
        self._follow_clock()
        self._hold_no_weights()
        self._enter_threads()
        self._say_what_exchanges_cost()
        self._keep_own_checkpoint()
        self._know_engine()

    def begin(self, mail: Path, stands_for: Mapping[int, int], step: int = 0) -> None:
        """A run begins, after `step`: nothing has happened in it, and nothing of the one before is on the device."""
        gc.collect()
        self.notes.clear(step)
        self.launches.clear()
        self.memory.begin()
        self.mail.begin(mail, stands_for)
        os.environ["EDGC_LAUNCHED_AT"] = str(time.time())

    def _read(self, place: str) -> float:
        """What the host reads at a place: 1. Entropies fall from window to window, so that ranks change."""
        falls = place.startswith("edgc/core/exchange/observation.py")
        return 1 - 0.1 * self.notes.step if falls else 1.0

    def _follow_clock(self) -> None:
        """Learn step and region from the product's clock."""
        from edgc.core.comm.telemetry import StepClock

        plain, notes = StepClock._mark, self.notes

        def mark(clock: StepClock, region: str) -> None:
            if not clock._marks:
                notes.step += 1
            notes.region = None if region == "end" else region
            plain(clock, region)

        StepClock._mark = mark  # type: ignore[method-assign]

    def _hold_no_weights(self) -> None:
        """Build the model without memory on the host: a stage of 12 billion parameters has gigabytes."""
        from edgc.suite.backends import stacked_engine
        from edgc.suite.backends.megatron import engine, gpt_model

        fake = self.tensors.fake

        def hollow(build: Callable[..., torch.nn.Module]) -> Any:
            def built(*arguments: Any) -> torch.nn.Module:
                with fake:
                    return build(*arguments)

            return built

        engine.build_model = hollow(gpt_model.build_model)
        gpt_model.initialise = lambda *unused: None
        stacked_engine.PlainGPT = hollow(stacked_engine.PlainGPT)  # type: ignore[misc]

    def _enter_threads(self) -> None:
        """Replicas that share this process have a thread each, and modes are a thread's own."""
        from edgc.core.comm.loopback import Ranks

        plain = Ranks._rank

        def rank(*arguments: Any) -> Any:
            with self.tensors.modes():
                return plain(*arguments)

        Ranks._rank = rank  # type: ignore[method-assign]

    def _say_what_exchanges_cost(self) -> None:
        """Exchanges are timed as on GPUs, but once each; the seconds, of which there are none, are replaced."""
        from edgc.core.exchange import costs
        from edgc.core.settings import assembly

        costs.ROUNDS = costs.REPETITIONS = 1
        plain = assembly.measure

        def measure(*arguments: Any) -> ExchangeCost:
            plain(*arguments)
            return _cost(self._width)

        assembly.measure = measure

    def _keep_own_checkpoint(self) -> None:
        """This process has its checkpoint for itself, as if it were the only rank; the first of a run is kept. The
        export is a CPU's work."""
        from edgc.core.exchange.costs import to_plain
        from edgc.suite.backends.megatron import checkpoint, hf_export

        save, latest, load = checkpoint.save, checkpoint.latest, checkpoint.load

        def save_own(folder: Path, step: int, rank: int, state: dict[str, Any], spec_id: str) -> None:
            save(folder, step, 0, state, spec_id)
            if self.engine.costs:
                from edgc.suite.training.loop import COSTS

                files.write_json(folder.with_name(COSTS), to_plain(self.engine.costs))
            if not (kept := _kept(folder.parent)).exists():
                shutil.copytree(folder, kept)

        checkpoint.save = save_own
        checkpoint.latest = lambda folder, world, spec_id: latest(folder, 1, spec_id)
        checkpoint.load = lambda folder, rank: load(folder, 0)
        hf_export.export = lambda *unused: None

    def _know_engine(self) -> None:
        """Have the engine at hand when memory is counted."""
        from edgc.suite.backends.megatron.engine import MegatronEngine
        from edgc.suite.backends.stacked_engine import StackedEngine

        for kind in (MegatronEngine, StackedEngine):
            kind.__init__ = self._known(kind.__init__)  # type: ignore[method-assign]

    def _known(self, plain: Callable[..., None]) -> Any:
        def init(engine: Any, spec: RunSpec, *arguments: Any, **options: Any) -> None:
            self.engine, self._width = engine, spec.model.hidden_size
            plain(engine, spec, *arguments, **options)

        return init

    def put_back(self, run_dir: Path) -> int:
        """Let the run's newest checkpoint be its first; its step."""
        shutil.rmtree(run_dir / "checkpoint")
        _kept(run_dir).rename(run_dir / "checkpoint")
        return int(next((run_dir / "checkpoint").glob("step-*")).name.removeprefix("step-"))

    def record(self) -> dict[str, Any]:
        """What happened, as JSON holds it."""
        whole = {"steps": self.notes.step, "peak_bytes": self.memory.peak, "memory": {}}
        if self.engine is not None:
            *names, rest = CATEGORIES
            whole["memory"] = self.memory.by_category({name: self.engine.held()[name] for name in names}, rest)
            self.engine = None
        return self.notes.to_plain() | whole


def _cost(hidden_size: int) -> ExchangeCost:
    """An exchange that pays up to an eighth of a layer's width, and takes long beside a backward pass.

    Every rank has to say the same, so it cannot depend on the matrices that a rank has.
    """
    highest = max(4, hidden_size // 8)
    seconds = {rank: 10 + 10 * rank / highest for rank in (2, highest, 2 * highest)}
    return ExchangeCost(10.0, 10 / highest, 1.0, seconds[highest], tuple(seconds.items()))


def _kept(run_dir: Path) -> Path:
    return run_dir / "first-checkpoint"
