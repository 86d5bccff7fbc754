"""What a policy gets to see: one window's measurements, equal on all ranks that must decide alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any

from edgc.core.aggregators.aggregator import Aggregator, NamedTensor
from edgc.core.base.lazy import torch
from edgc.core.base.resumable import Resumable
from edgc.core.comm import Communicator, Sharded
from edgc.core.comm.telemetry import Region
from edgc.core.exchange.candidate_errors import squared_errors
from edgc.core.exchange.entropy import sampled_entropy
from edgc.core.exchange.relative_error import OBSERVE, RelativeErrors
from edgc.core.exchange.wire_time import WireTimes
from edgc.core.policies.policy import Decision, Observation

if TYPE_CHECKING:
    from torch import Tensor

    from edgc.core.exchange.gradient_exchange import GradientExchange

#: Tag of what ranks tell each other so that they decide alike.
AGREE = "agree"
#: Region of what a policy needs to see; what only the records show is charged to `observe`.
ENTROPY = "entropy"


class WindowObserver(Resumable):
    """Collects measurements over a policy's window; at its end all ranks of a stage agree on them.

    One all-reduce makes the means and one broadcast makes them equal bit for bit, whatever order a transport
    sums in: policies are pure, so equal observations are equal decisions. Then the stages tell each other theirs.
    A mean of entropy is over the samples and ranks that have one.
    """

    # the window so far; a round may end steps after its first exchange
    kept = ("entropy", "missing", "loss", "backward", "squares", "wire", "spectra", "tables", "payload", "errors")

    def __init__(self, exchange: GradientExchange, agreement: Communicator, stages: Communicator | None) -> None:
        """Of an exchange that has all else; see there."""
        self._exchange, self._policy, self._comm = exchange, exchange.policy, exchange.comm
        self._agreement, self._stages = agreement, stages
        self._errors = RelativeErrors(self._comm, agreement, lambda: isinstance(self._aggregator.layout, Sharded))
        self._payload: dict[str, tuple[int, ...]] = {}  # bytes at candidates
        self._wire = WireTimes(self._aggregator, self._comm, agreement)
        self.device: Any = None  #: of the gradients
        self._begin_window()

    @property
    def _aggregator(self) -> Aggregator:
        return self._exchange.aggregator

    def move_kept(self, device: Any) -> None:
        super().move_kept(device)
        self._errors.move_kept(device)
        self.device = device

    def _begin_window(self) -> None:
        self._entropy: dict[str, Tensor] = {}  # sums over the window's samples
        self._missing: dict[str, Tensor] = {}  # how many of them had none
        self._squares: dict[str, Tensor] = {}  # of norms, sums over the window's rounds
        self._loss: Tensor | float = 0.0  # sum over the window's rounds
        self._backward: list[float] = []  # seconds of the last micro-batch, by step
        self._spectra: dict[str, Tensor] = {}  # singular values of the window's last round
        self._tables: dict[str, Tensor] = {}  # squared errors at candidates, of the window's last round

    def before(
        self, round: int, bucket: Sequence[NamedTensor], compressible: Sequence[NamedTensor], decision: Decision
    ) -> None:
        """Look at a bucket of this rank's gradients before its exchange. `compressible`: what may be, of the bucket."""
        if self._policy.ladder:
            self._wire.exchanged(bucket, decision)
        sampling, window = self._policy.sampling, self._policy.window
        if sampling is not None and window is not None and round % window % sampling.every == 0:
            with self._comm.ledger.clock.region(ENTROPY):
                self._add_entropy(sampled_entropy(compressible, sampling))
        if self._policy.candidates and self._ends_window(round) and compressible:
            self._look_at_candidates(round, compressible)

    def _add_entropy(self, found: Mapping[str, Tensor]) -> None:
        if not found:
            return
        nats = torch.stack([*found.values()])
        finite = nats.isfinite()
        for sums, values in (self._entropy, nats.where(finite, 0.0)), (self._missing, (~finite).double()):
            for name, value in zip(found, values, strict=True):
                sums[name] = sums[name] + value if name in sums else value

    def _look_at_candidates(self, round: int, gradients: Sequence[NamedTensor]) -> None:
        """What each of them would lose of this rank's gradients. Collective where a mean is compressed."""
        amounts = self._policy.candidates
        with self._comm.ledger.clock.region(ENTROPY):
            self._tables |= squared_errors(self._aggregator, gradients, amounts, self._comm, round, AGREE)
        for gradient in gradients:
            if gradient.name not in self._payload:
                shapes, itemsize = {gradient.name: tuple(gradient.tensor.shape)}, gradient.tensor.element_size()
                ranks, of = max(2, self._comm.size), self._aggregator.workload
                self._payload[gradient.name] = tuple(of(shapes, Decision(a), ranks, itemsize).payload for a in amounts)

    def after(self, round: int, compressible: Sequence[NamedTensor]) -> None:
        """Look at the decoded averages of a bucket: in every round their norms, in a window's last one what they lost.

        As far as the policy reads it, or the records show it.
        """
        if self._policy.norms and compressible:
            with self._comm.ledger.clock.region(ENTROPY):
                self._add_norms(compressible)
        if not self._ends_window(round):
            return
        with self._comm.ledger.clock.region(self._region):
            for gradient in compressible:
                residual = self._aggregator.residual(gradient.name)
                if residual is None or residual.dim() < 2 or not residual.numel():
                    continue
                self._errors.add(gradient.name, residual, self._defined(gradient), round)
                if self._policy.spectrum and (spectrum := self._aggregator.spectrum(gradient.name)) is not None:
                    self._spectra[gradient.name] = spectrum  # None: dense, and rounded

    def _add_norms(self, averages: Sequence[NamedTensor]) -> None:
        kind = torch.promote_types(torch.float32, averages[0].tensor.dtype)
        parts = [self._defined(average) for average in averages]
        norms = torch._foreach_norm(parts, 2, dtype=kind)  # type: ignore[attr-defined]
        squares = torch.stack(norms).double().square()
        if isinstance(self._aggregator.layout, Sharded):
            squares *= self._comm.size  # of parts, whose sum is the whole's; ranks take the mean
        for average, square in zip(averages, squares, strict=True):  # by name: DDP makes other buckets after a step
            before = self._squares.get(average.name)
            self._squares[average.name] = square if before is None else before.to(square.device) + square

    def _defined(self, average: NamedTensor) -> Tensor:
        """What this rank has of an average: all of it, or what it owns, flat and maybe empty."""
        layout = self._aggregator.layout
        if not isinstance(layout, Sharded):
            return average.tensor
        flat = average.tensor.view(-1)
        for piece in layout.owned(self._comm.rank, [average.name]):
            return flat[piece.within]
        return flat[:0]

    def timed(self, backward_seconds: float, seconds: Mapping[str, float] | None) -> None:
        """Count one step's backward time of a micro-batch, and its regions' seconds."""
        if self._policy.window:
            self._backward.append(backward_seconds)
        if self._policy.ladder and seconds is not None:
            self._wire.timed(seconds)

    def end_round(self, round: int, loss: Tensor | None) -> Observation | None:
        """Count the round's loss (the last stage's matters). The window's observation, if it ends here: collective."""
        if self._policy.window and loss is not None:
            self._loss = self._loss + loss.detach().double()
        if not self._ends_window(round):
            return None
        with self._comm.ledger.clock.region(self._region):
            errors = self._errors.take(AGREE if self._policy.spectrum else OBSERVE)
        with self._comm.ledger.clock.region(ENTROPY):
            observation = replace(self._agreed(round, errors), **self._wire_time())
        self._begin_window()
        return observation

    def _wire_time(self) -> dict[str, Any]:
        """What an `Observation` says of it. Collective if the policy reads it."""
        found = self._wire.take(self.device, AGREE) if self._policy.ladder else {}
        prices = {"ladder_bytes": self._wire.price(self._policy.ladder, self._exchange.decided)} if found else {}
        return found | prices

    def _agreed(self, round: int, errors: dict[str, float]) -> Observation:
        window, sampling = self._policy.window, self._policy.sampling
        assert window is not None
        samples = math.ceil(window / sampling.every) if sampling else 1
        entropies, spectra = dict(sorted(self._entropy.items())), dict(sorted(self._spectra.items()))
        backward = median(self._backward or [0.0])  # a first step, or a disturbed one, takes far longer
        missing = [self._missing.get(name, torch.zeros(())) for name in entropies]  # an older checkpoint has none
        first = [torch.as_tensor(self._loss / window), torch.tensor(backward), *entropies.values(), *missing]
        scalars = torch.stack([value.to(self.device, torch.float64).reshape(()) for value in first])
        scalars[2:] /= samples
        squares = [s.to(self.device, torch.float64).square() for s in spectra.values()]
        sums, tables = dict(sorted(self._squares.items())), dict(sorted(self._tables.items()))
        norms = [each.to(self.device).reshape(1) / window for each in sums.values()]
        means = torch.cat([scalars, *squares, *norms, *tables.values()]) / self._agreement.size
        self._agreement.all_reduce(means, tag=AGREE).wait()
        agreed = torch.cat([means, means.new_tensor(list(errors.values()))])
        self._agreement.broadcast(agreed, tag=AGREE).wait()
        values = iter(agreed.tolist())

        def taken(count: int) -> list[float]:
            return [*islice(values, count)]

        (loss, seconds), nats, without = taken(2), taken(len(entropies)), taken(len(entropies))
        half = 0.5 / (samples * self._agreement.size)  # of one sample's share
        seen = zip(entropies, nats, without, strict=True)
        entropy = {name: value / (1 - share) for name, value, share in seen if share < 1 - half}
        spectrum = {name: tuple(map(math.sqrt, taken(len(spectra[name])))) for name in spectra}
        norm = dict(zip(sums, map(math.sqrt, taken(len(sums))), strict=True))
        squared_error = {name: tuple(taken(len(table))) for name, table in tables.items()}
        by_stage = self._all_stages([_mean(entropy), loss, seconds])
        return Observation(
            round,
            entropy=entropy,
            relative_error=dict(zip(errors, taken(len(errors)), strict=True)),
            spectrum=spectrum,
            norm=norm,
            squared_error=squared_error,
            payload={name: tuple(self._payload[name]) for name in tables},
            loss=by_stage[-1][1],  # only the last stage has one
            stage_entropy=tuple(None if math.isnan(mean) else mean for mean, _, _ in by_stage),
            backward_seconds=tuple(seconds for _, _, seconds in by_stage),
        )

    def _all_stages(self, numbers: list[float]) -> list[list[float]]:
        if self._stages is None:
            return [numbers]
        own = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        everywhere = own.new_empty(self._stages.size, len(numbers))
        self._stages.all_gather(everywhere, own, tag=AGREE).wait()
        return everywhere.tolist()

    @property
    def _region(self) -> Region:
        return ENTROPY if self._policy.spectrum else OBSERVE

    def _ends_window(self, round: int) -> bool:
        window = self._policy.window
        return bool(window) and (round + 1) % window == 0


def _mean(values: dict[str, float]) -> float:
    return sum(values.values()) / len(values) if values else math.nan
