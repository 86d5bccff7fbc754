"""A timing session on one of its processes: all methods are built, and then take turns."""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch.distributed as dist

from edgc.core.base import files
from edgc.core.comm.telemetry import REGIONS
from edgc.core.exchange.costs import link_speed
from edgc.suite.backends.megatron.process import Place, join, leave, seed_everything
from edgc.suite.backends.training_engine import Engine, build_engine
from edgc.suite.config import Cell, RunSpec
from edgc.suite.config.timing import UNSHAPED, Session, run_folder
from edgc.suite.training.data.dataset import Batches, open_corpus
from edgc.suite.training.load import Pace, Watch, own_seconds
from edgc.suite.training.loop import divergence, take_step, write_manifest
from edgc.suite.training.node_links import network_of
from edgc.suite.training.recorder import Recorder, gathered
from edgc.suite.training.stopping import Stopping

LINK_NUMEL, LINK_REPETITIONS = 2**18, 3  # of the all-reduce that measures a link: 1 MiB, as slow ones take seconds


def time_methods(session: Session, folder: Path, corpus_dir: Path) -> None:
    """Take every cell of the session. Collective over the job.

    Writes every run's records. A method whose gradient norm is not finite is out; its status says so. Returns early,
    with the reason in the session's `status.json`, if it is asked to stop: what is timed has to be timed at one go.
    """
    lead, timing = session.runs[0], session.timing
    place = join(lead)
    contenders = [Contender(spec, place, run_folder(folder, spec), corpus_dir) for spec in session.runs]
    links = SessionLinks(lead, contenders[0].engine)
    for contender in contenders:
        contender.begin()
    gc.collect()
    gc.freeze()  # a full collection would go through every method's objects in the middle of one method's step
    stopping, pace = Stopping(folder, place.rank), Pace(timing.patience)
    reason = None
    for number, cell in enumerate(timing.cells(len(contenders)), start=1):
        links.shape(cell.rate)
        slower = pace.wait() if timing.patience else None
        settle = timing.settle if cell.round else timing.warmup
        contenders[cell.method].take(cell, timing.steps_of(cell), settle, slower)
        if reason := stopping.due(number):
            break
    for contender in contenders:
        contender.end(links, reason)
    if place.rank == 0:
        files.write_json(folder / "status.json", {"status": reason or "done"})
    leave()


class Contender:
    """One method of a session: model, optimizer and records of its own, in the process groups of all."""

    def __init__(self, spec: RunSpec, place: Place, run_dir: Path, corpus_dir: Path) -> None:
        corpus = open_corpus(corpus_dir, spec.model.seq_length, spec.training.global_batch)
        self.spec, self._place, self._run_dir, self._corpus = spec, place, run_dir, corpus.manifest
        seed_everything(spec.seed, place)
        self.engine = build_engine(spec, place, corpus.manifest["vocab_size"])
        self._batches = Batches(spec, corpus, place.data)
        self._recorder = Recorder(spec, run_dir, place)
        # An exchange keeps ranks in step. Without one, those that are ahead are done before the others, and leave them
        # cores of their own, so that steps look shorter. The wait is no part of a step's time.
        self._floor = spec.method.floor
        self._step, self._message = 0, ""
        self._seconds: dict[str, list[dict[str, float]]] = defaultdict(list)  # of counted steps by region, by rate

    def begin(self) -> None:
        """Write what holds before the first step."""
        self._recorder.decisions(self.engine.decisions())
        self._recorder.aside_seconds["startup"] += time.time() - float(os.environ["EDGC_LAUNCHED_AT"])

    def take(self, cell: Cell, steps: int, settle: int, slower: float | None) -> None:
        """Take the steps of a cell; the first `settle` do not count. Collective. `slower`: what `Pace` said of it."""
        if self._message:
            return
        dist.barrier()
        watch, own, norms = Watch(), own_seconds(), [0.0]
        for i in range(steps):
            counted = i >= settle
            if self._floor:
                dist.barrier()
            if i == settle:
                self._recorder.drain()
            marks = {"round": cell.round, "rate": cell.rate, "counted": counted}
            norm, decided, seconds = take_step(
                self._step, self.spec, self.engine, self._batches, self._recorder, **marks
            )
            norms.append(norm)
            if counted:
                self._seconds[cell.rate].append(seconds)
            self._step += 1
            self._recorder.decisions(decided)
        everybody = gathered((own_seconds() - own, _worst(norms)))  # without an exchange, ranks have different norms
        used, worst = sum(seconds for seconds, _ in everybody), _worst([norm for _, norm in everybody])
        self.engine.drain()
        self._recorder.drain()
        alone = self.spec.cluster.nodes == 1  # only then are all of the machine's processes this job's
        self._recorder.mark(foreign_load=watch.foreign_share(used) if alone else None, slower=slower)
        self._recorder.flush()
        if not math.isfinite(worst):
            self._message = divergence(self.spec, self._step, worst)

    def end(self, links: SessionLinks, reason: str | None) -> None:
        """Write where the records come from, and how it ended."""
        rates = [{"rate": rate, "all_reduce_bytes_per_second": measured} for rate, measured in links.rates]
        write_manifest(self.spec, self._run_dir, self._corpus, self.engine, links.rates[0][1], rates=rates)
        self._recorder.memory(self.engine.held())
        status = "diverged" if self._message else reason or "done"
        iterations, parameters = self.spec.training.iterations, self.engine.num_parameters
        self._recorder.write_status(status, self._step, iterations, self._message, num_parameters=parameters)
        self._write_stages()

    def _write_stages(self) -> None:
        """By rate, each stage's seconds by region in its ranks' fastest step, their mean: `stages.json`. Collective."""
        fastest = {rate: min(steps, key=lambda step: step["step"]) for rate, steps in self._seconds.items()}
        own = {rate: {region: step.get(region, 0.0) for region in REGIONS} for rate, step in fastest.items()}
        everybody = gathered(own)
        ranks = len(everybody) // self._place.num_stages  # megatron numbers a stage's ranks one after another
        record = {
            rate: [
                {region: statistics.fmean(one[rate][region] for one in everybody[i : i + ranks]) for region in REGIONS}
                for i in range(0, len(everybody), ranks)
            ]
            for rate in own
        }
        if self._place.rank == 0:
            files.write_json(self._run_dir / "stages.json", record)


def _worst(norms: list[float]) -> float:
    """The largest; one that is not finite, if there is one."""
    return max(norms, key=lambda norm: (not math.isfinite(norm), norm))


class SessionLinks:
    """The links of a session: their rates are set between cells, and each is measured when it is set first."""

    def __init__(self, spec: RunSpec, engine: Engine) -> None:
        self._network = network_of(spec.cluster) if spec.cluster.links else None
        self._engine = engine
        self._rate: str | None = None  # the cluster's file may have set any
        self.rates: list[tuple[str, float | None]] = []  #: each with the bytes a second that a rank sent, None if alone
        self.shape(UNSHAPED)

    def shape(self, rate: str) -> None:
        """Set all links to `rate`. Collective."""
        if rate == self._rate:
            return
        self._rate = rate
        if self._network is not None and self._engine.place.rank == 0:
            self._network.shape(None if rate == UNSHAPED else rate)
        dist.barrier()
        if rate not in dict(self.rates):
            group = self._engine.group
            assert group is not None, "replicas that share a process are not timed"
            measured = link_speed(group, self._engine.place.device, LINK_NUMEL, LINK_REPETITIONS)
            self.rates.append((rate, measured))
