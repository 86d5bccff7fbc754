"""A run's records: every rank keeps a row a step, rank 0 gathers and appends them to the run's folder."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from edgc.core.base import files
from edgc.core.comm import GRADIENT
from edgc.core.comm.telemetry import REGIONS, Charge
from edgc.core.exchange.parameter_gather import TAG as PARAMETERS
from edgc.suite.backends.training_engine import Held, sizes
from edgc.suite.config import RunSpec
from edgc.suite.training import node_links
from edgc.suite.training.probe import GradientProbe, timed

if TYPE_CHECKING:
    from edgc.suite.backends.megatron.process import Place

#: Byte columns and the ledger tag each sums over all ranks. `payload_bytes` and `wire_bytes` are the gradients'; of any
#: other tag it is what was sent. `parameters_payload_bytes`: what was handed over of parameters.
TAGS = ("agree", "observe", "embedding", "pipeline", PARAMETERS)
PAYLOAD = f"{PARAMETERS}_payload_bytes"
SUMS = ("payload_bytes", "wire_bytes", "dense_bytes", *(f"{tag}_bytes" for tag in TAGS), PAYLOAD)
ASIDE = ("startup", "evaluation", "checkpoint")
PROBED = "probe.jsonl"
T = TypeVar("T")


class Recorder:
    """Buffers step rows; `flush` is a collective, so all ranks must call it at the same steps.

    Probes' records are a line a step and stage.
    """

    def __init__(self, spec: RunSpec, run_dir: Path, place: Place) -> None:
        self._run_dir, self._rank, self._device = run_dir, place.rank, place.device
        self._has_loss, self._ranks_of_stage = place.last_stage, spec.processes // spec.parallel.pipeline
        self._leads = place.data == 0 and place.tensor == 0
        self._tokens_per_step = spec.training.global_batch * spec.model.seq_length
        self._rows: list[dict[str, Any]] = []
        self._local: list[torch.Tensor] = []
        self._decided: list[dict[str, Any]] = []
        self._adapts, self._asks = spec.method.adapts, True  # each policy decides before the first step
        self.wire_bytes = 0.0  #: of all ranks since the first step
        self.training_seconds = 0.0  #: sum of step times
        self.aside_seconds: dict[str, float] = dict.fromkeys(ASIDE, 0.0)  #: what is kept out of the training seconds
        self.validation_loss = math.nan  #: nats a token, of the last evaluation
        self.memory_bytes: dict[str, dict[str, int]] = {}  #: of rank 0 and of the rank that holds most, by category
        self._probes = spec.training.probe
        self.probe = probe_of(spec, place)  #: for the exchange
        self._wants_events = spec.training.tensorboard and place.rank == 0
        self._events: Events | None = None
        self._cluster = spec.cluster
        self._sent: int | None = None

    def begin_step(self) -> None:
        """Call it before every step: what the interface sends from here on is the step's.

        Or, after another step, from that one's end on: a slow link still carries a step's last bytes when it is over.
        """
        if not self._rows:
            self._sent = node_links.sent(self._cluster)

    def step(
        self, step: int, loss: torch.Tensor, grad_norm: float, lr: float,
        seconds: dict[str, float], exchange_end: float, charges: dict[str, Charge], dense_bytes: int,
        marks: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Keep one finished step (1-based). No synchronisation here.

        `loss` counts on the last stage only; `exchange_end`: seconds from the step's begin to its exchange's end;
        `marks`: more columns of its row.
        """
        gradient = charges.get(GRADIENT, Charge())
        sums = [gradient.payload_bytes, gradient.wire_bytes, dense_bytes]
        sums += [charges.get(tag, Charge()).wire_bytes for tag in TAGS]
        sums.append(charges.get(PARAMETERS, Charge()).payload_bytes)
        if (sent := node_links.sent(self._cluster)) is not None and self._sent is not None:
            sums.append(sent - self._sent)
            self._sent = sent
        known = torch.tensor([*sums, peak_memory(self._device), exchange_end], dtype=torch.float64, device=self._device)
        self._local.append(torch.cat([known, loss.double().view(1) if self._has_loss else known.new_zeros(1)]))
        times = {f"t_{region}": seconds.get(region, 0.0) for region in REGIONS}
        exposed = times["t_encode"] + times["t_wire"] + times["t_decode"]
        self.training_seconds += seconds["step"]
        self._rows.append(
            {"step": step, "tokens": step * self._tokens_per_step, "grad_norm": grad_norm, "lr": lr}
            | dict(marks or {})
            | {"t_step": seconds["step"], **times, "t_exposed": exposed, "t_in_flight": gradient.seconds}
        )

    def mark(self, **marks: Any) -> None:
        """Add columns to the rows since the last `flush`."""
        for row in self._rows:
            row |= marks

    def mark_last(self, **marks: Any) -> None:
        """Add columns to the last step's row, right after it."""
        self._rows[-1] |= marks

    def drain(self) -> None:
        """Count what the links still carry of the last step as that step's. Collective.

        A rank's own part of an all-reduce may be complete while its last message waits at its interface.
        """
        if self._sent is None or not self._local:
            return
        dist.barrier()  # whoever passes it has received everything: so nothing is on its way
        before, self._sent = self._sent, node_links.sent(self._cluster) or 0
        self._local[-1][len(SUMS)] += self._sent - before

    def flush(self) -> None:
        """Gather all ranks' rows and append them to steps.jsonl, and what probes saw to `PROBED`. Collective."""
        if self._probes.looks:
            seen = [record for rank in gathered(self.probe.take() if self.probe else []) for record in rank]
            if self._rank == 0:
                files.append_jsonl(self._run_dir / PROBED, sorted(seen, key=lambda r: (r["step"], r["stage"])))
        if not self._local:
            return
        if self._asks:
            everybody, self._decided, self._asks = gathered(self._decided), [], self._adapts
            decided = sorted((record for stage in everybody for record in stage), key=lambda r: (r["step"], r["stage"]))
            if self._rank == 0:
                files.append_jsonl(self._run_dir / "decisions.jsonl", decided)
        local = torch.stack(self._local)
        everywhere = torch.empty(dist.get_world_size(), *local.shape, dtype=local.dtype, device=local.device)
        dist.all_gather_into_tensor(everywhere.view(-1), local.view(-1))  # bookkeeping, between timed steps
        sums = everywhere[..., :-3].sum(0).tolist()
        names = [*SUMS, "interface_bytes"][: len(sums[0])]
        peaks = everywhere[..., -3].amax(0).tolist()
        stage = self._ranks_of_stage  # megatron numbers a stage's ranks one after another
        firsts, lasts = everywhere[:stage, :, -2].amax(0).tolist(), everywhere[-stage:, :, -2].amax(0).tolist()
        losses = (everywhere[..., -1].sum(0) / stage).tolist()
        for row, own, peak, first, last, loss in zip(self._rows, sums, peaks, firsts, lasts, losses, strict=True):
            row |= {"loss": loss, "peak_mem": int(peak)} | {k: int(v) for k, v in zip(names, own, strict=True)}
            row |= {"t_first_stage_end": first, "t_last_stage_end": last}
            self.wire_bytes += row["wire_bytes"]
        if self._rank == 0:
            files.append_jsonl(self._run_dir / "steps.jsonl", self._rows)
            if self._events:
                self._events.steps(self._rows)
        self._rows, self._local = [], []

    def evaluation(self, step: int, loss: float) -> None:
        """Append a validation loss; call inside `aside`, so that the bytes are complete."""
        self.validation_loss = loss
        record = {
            "step": step,
            "tokens": step * self._tokens_per_step,
            "seconds": self.training_seconds,
            "wire_bytes": self.wire_bytes,
            "loss": loss,
        }
        if self._rank == 0:
            files.append_jsonl(self._run_dir / "evals.jsonl", [record])
            if self._events:
                self._events.evaluation(record)

    def memory(self, held: Held) -> None:
        """Count what ranks keep from step to step; call it after a step. Collective."""
        everybody = gathered(sizes(held))
        self.memory_bytes = {"first": everybody[0], "largest": max(everybody, key=lambda own: sum(own.values()))}

    def decisions(self, records: list[dict[str, Any]]) -> None:
        """Keep what was decided for the next `flush`: a stage may have nothing to decide on."""
        self._decided += records if self._leads else []

    def notes(self, note: str) -> str:
        """What the stages' policies have to say, in lines; rank 0 prints them too. Collective."""
        lines = "\n".join(line for line in gathered(note if self._leads else "") if line)
        if lines and self._rank == 0:
            print(lines, flush=True)
        return lines

    def rewind(self, step: int) -> None:
        """Begin after `step`: see the function `rewind`. A run that begins, and wants probes, times the sampler."""
        for name in ("steps.jsonl", "evals.jsonl", "decisions.jsonl", PROBED):
            if self._rank == 0 and (path := self._run_dir / name).exists():
                rewind(path, step)
        if self._rank == 0 and self._probes.looks and not step:
            files.write_jsonl(self._run_dir / PROBED, timed(self._probes, self._device))
        if self._wants_events:
            self._events = Events(self._run_dir, step)

    @contextlib.contextmanager
    def aside(self, what: str) -> Iterator[None]:
        """Keep the time inside apart from training; all rows are flushed first."""
        begin = time.perf_counter()
        self.flush()
        yield
        self.aside_seconds[what] += time.perf_counter() - begin

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run goes on counting from."""
        return {
            "wire_bytes": self.wire_bytes,
            "training_seconds": self.training_seconds,
            "aside_seconds": dict(self.aside_seconds),
            "validation_loss": self.validation_loss,
            "memory_bytes": self.memory_bytes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; seconds spent aside since the launch are added to it."""
        self.wire_bytes, self.training_seconds = state["wire_bytes"], state["training_seconds"]
        self.validation_loss = state["validation_loss"]
        self.memory_bytes = state.get("memory_bytes", {})  # none in older checkpoints
        for what, seconds in state["aside_seconds"].items():
            self.aside_seconds[what] += seconds

    def write_status(self, status: str, step: int, iterations: int, message: str = "", **more: Any) -> None:
        """How the run ended, atomically. Only rank 0 writes."""
        if self._rank:
            return
        finite = self.validation_loss if math.isfinite(self.validation_loss) else None
        record = {"status": status, "step": step, "iterations": iterations, "message": message, **more}
        record |= {"validation_loss": finite, "training_seconds": self.training_seconds}
        record |= {f"{what}_seconds": seconds for what, seconds in self.aside_seconds.items()}
        record |= {"memory_bytes": self.memory_bytes} if self.memory_bytes else {}
        files.write_json(self._run_dir / "status.json", record)


def probe_of(spec: RunSpec, place: Place) -> GradientProbe | None:
    """The probe of a stage's first data- and tensor-parallel rank, if the run wants one."""
    settings = spec.training.probe
    if not settings.looks or place.data or place.tensor:
        return None
    return GradientProbe(place.stage, settings)


def gathered(own: T) -> list[T]:
    """Every rank's object, in rank order. Collective."""
    everybody: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, own)
    return everybody


def rewind(path: Path, step: int) -> None:
    """Drop a file's records of steps after `step`, all if it is 0: a resumed run makes them again."""
    files.write_jsonl(path, [r for r in files.read_jsonl(path) if step and r["step"] <= step])


def peak_memory(device: torch.device) -> float:
    """Bytes: the device's peak allocation, or this process's peak resident set on CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Events:
    """A run's records as TensorBoard events in `<run>/tensorboard`, by torch's own writer. Nothing here reads them.

    first: finished steps that the run goes on from. TensorBoard then leaves out what an earlier start wrote of later
    ones.
    """

    def __init__(self, run_dir: Path, first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # asks for package tensorboard: see `check_machine`

        self._writer = SummaryWriter(str(run_dir / "tensorboard"), purge_step=first + 1)

    def steps(self, rows: list[dict[str, Any]]) -> None:
        """Add every number of some step records; seconds and bytes are groups of their own."""
        for row in rows:
            for name, value in row.items():
                if isinstance(value, Real) and name != "step":
                    self._writer.add_scalar(tag(name), value, row["step"])
        self._writer.flush()

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Add a validation loss."""
        self._writer.add_scalar("train/validation_loss", record["loss"], record["step"])
        self._writer.flush()


def tag(name: str) -> str:
    """Where TensorBoard shows a column of the step records: t_wire in seconds/wire, wire_bytes in bytes/wire."""
    if name.startswith("t_"):
        return f"seconds/{name.removeprefix('t_')}"
    if name.endswith("_bytes"):
        return f"bytes/{name.removesuffix('_bytes')}"
    return f"train/{name}"
