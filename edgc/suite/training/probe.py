"""A full look at one stage's gradients while a run trains: entropy at many sampling rates, singular values, elements.

For experiments about gradients themselves; no method needs it. The exchange calls it in its clock's region `observe`.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.lazy import torch
from edgc.core.exchange.entropy import sample_stride, sampled_entropy
from edgc.core.ops.moments import sample_size
from edgc.core.policies.policy import Sampling
from edgc.suite.config import Probe

if TYPE_CHECKING:
    from torch import Tensor

HISTOGRAM_BINS, HISTOGRAM_LIMIT = 61, 6.1  # equal bins from −limit to limit standard deviations; tails in the outer two
TIMED = 20  #: repetitions of what is timed before training
DIGITS = 7  #: significant, in records
LISTED = 5  #: the same, of singular values and histograms: an archive is mostly of these


@dataclass
class _Look:
    """What was seen in one step."""

    entropy: dict[Sampling, dict[str, Tensor]] = field(default_factory=lambda: defaultdict(dict))
    seconds: dict[Sampling, float] = field(default_factory=lambda: defaultdict(float))
    spectra: dict[str, dict[str, Any]] = field(default_factory=dict)  #: by matrix
    averages: list[NamedTensor] = field(default_factory=list)  #: as long as the step lasts


class GradientProbe:
    """Looks at the matrices of every bucket; `take` gives one record a step that it looked at.

    Entropy is of this rank's gradients before their exchange (what GDS sees), with the seconds that GDS needs for
    all matrices; spectra are of the average after it. Keeps a copy of the matrices between spectra.
    """

    def __init__(self, stage: int, settings: Probe) -> None:
        self._stage, self._settings = stage, settings
        self._samplings = [Sampling(1, rate, estimator) for estimator in settings.estimators for rate in settings.rates]
        self._looks: dict[int, _Look] = defaultdict(_Look)
        self._shapes: dict[str, list[int]] = {}
        self._last: dict[str, Tensor] = {}  # the averages of the last spectra

    def local(self, step: int, gradients: Sequence[NamedTensor]) -> None:
        """Entropy at every rate by every estimator, in an order drawn anew each step: no rate always goes first."""
        matrices = _matrices(gradients)
        if not _due(step, self._settings.entropy_every) or not matrices:
            return
        look = self._look(step, matrices)
        for sampling in random.Random(step).sample(self._samplings, len(self._samplings)):
            begin = _now(matrices[0].tensor)
            entropy = sampled_entropy(matrices, sampling)
            look.seconds[sampling] += _now(matrices[0].tensor) - begin
            look.entropy[sampling] |= entropy

    def average(self, step: int, gradients: Sequence[NamedTensor]) -> None:
        """Singular values, elements, and cosines: with this step's other matrices of its shape and its own last one."""
        matrices = _matrices(gradients)
        if not _due(step, self._settings.spectra_every) or not matrices:
            return
        look = self._look(step, matrices)
        for gradient in matrices:
            name, matrix = gradient.name, gradient.tensor
            seen = spectrum(matrix) | {
                "previous": cosine(matrix, self._last[name]) if name in self._last else None,
                "alike": {
                    other.name: cosine(matrix, other.tensor)
                    for other in look.averages
                    if other.tensor.shape == matrix.shape
                },
            }
            look.spectra[name] = seen
            look.averages.append(gradient)
            self._last[name] = matrix.detach().clone()

    def _look(self, step: int, matrices: Sequence[NamedTensor]) -> _Look:
        self._shapes |= {gradient.name: list(gradient.tensor.shape) for gradient in matrices}
        return self._looks[step]

    def take(self) -> list[dict[str, Any]]:
        """Records of the finished steps since the last call: `step` (1-based), `stage`, and lists in the order of
        `parameters`. Call it between steps."""
        looks, self._looks = self._looks, defaultdict(_Look)
        return [self._record(step, look) for step, look in looks.items()]

    def _record(self, step: int, look: _Look) -> dict[str, Any]:
        names = sorted(self._shapes)
        record: dict[str, Any] = {"step": step + 1, "stage": self._stage, "parameters": names}
        record["shapes"] = [self._shapes[name] for name in names]
        for sampling in self._samplings if look.entropy else ():
            estimator, rate = sampling.estimator, f"{sampling.rate:g}"
            nats = torch.stack([look.entropy[sampling][name] for name in names]).tolist()
            record.setdefault("entropy", {}).setdefault(estimator, {})[rate] = [_plain(value) for value in nats]
            record.setdefault("seconds", {}).setdefault(estimator, {})[rate] = _plain(look.seconds[sampling])
            record.setdefault("elements", {})[rate] = sum(_sampled(self._shapes[n], sampling.rate) for n in names)
        if look.spectra:
            kinds = next(iter(look.spectra.values()))
            record["spectra"] = {kind: [look.spectra[name][kind] for name in names] for kind in kinds}
        return record


def timed(settings: Probe, device: Any = None) -> list[dict[str, Any]]:
    """Seconds that sampling takes on random matrices of `timed_shapes`: `TIMED` records, as of steps that are not."""
    shapes, generator = settings.timed_shapes, torch.Generator().manual_seed(0)
    probe = GradientProbe(0, settings.model_copy(update={"entropy_every": 1}))
    matrices = [NamedTensor(str(i), torch.randn(s, generator=generator).to(device)) for i, s in enumerate(shapes)]
    for repetition in range(TIMED if shapes else 0):
        probe.local(repetition, matrices)
    return [
        {"step": 0, "stage": 0, "timed": r["step"], "seconds": r["seconds"], "elements": r["elements"]}
        for r in probe.take()
    ]


def spectrum(matrix: Tensor) -> dict[str, Any]:
    """`singular_values` (falling), and of the elements: `mean`, `deviation` σ, `skewness` and `kurtosis` (both 0 of a
    normal distribution) and `histogram` (shares, `HISTOGRAM_BINS` bins in units of σ around the mean). All None if not
    everything is finite, the last three if all elements are equal."""
    matrix = matrix.detach().float()
    if not matrix.isfinite().all():
        return dict.fromkeys(("singular_values", "mean", "deviation", "skewness", "kurtosis", "histogram"))
    mean, deviation = float(matrix.mean()), float(matrix.std(correction=0))
    seen: dict[str, Any] = {"singular_values": [_plain(s, LISTED) for s in torch.linalg.svdvals(matrix).tolist()]}
    seen |= {"mean": _plain(mean), "deviation": _plain(deviation)}
    seen |= {"skewness": None, "kurtosis": None, "histogram": None}
    if deviation > 0:
        unit = (matrix - mean) / deviation
        bins = unit.clamp(-HISTOGRAM_LIMIT, HISTOGRAM_LIMIT)
        counts = torch.histc(bins, HISTOGRAM_BINS, -HISTOGRAM_LIMIT, HISTOGRAM_LIMIT)
        seen |= {"skewness": _plain(float(unit.pow(3).mean())), "kurtosis": _plain(float(unit.pow(4).mean()) - 3)}
        seen["histogram"] = [_plain(share, LISTED) for share in (counts / unit.numel()).tolist()]
    return seen


def cosine(a: Tensor, b: Tensor) -> float | None:
    """⟨a, b⟩ / (‖a‖ ‖b‖) of two matrices of one shape; None where that is not a number."""
    a, b = a.detach().float(), b.detach().float()
    return _plain(float((a * b).sum() / (a.norm() * b.norm())))


def _matrices(gradients: Sequence[NamedTensor]) -> list[NamedTensor]:
    return [gradient for gradient in gradients if gradient.tensor.dim() == 2]


def _sampled(shape: Sequence[int], rate: float) -> int:
    """Elements that `sampled_entropy` reads."""
    return sample_size(math.prod(shape), sample_stride(shape, rate))


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


def _now(tensor: Tensor) -> float:
    """Seconds; on a GPU when all that was launched is done."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter()


def _plain(value: float, digits: int = DIGITS) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
