"""Few bits an element, averaged in two shots, or in one (edgc/core/aggregators/shots.py).

Where each element's average is needed by its owner only, one shot to the owner is all there is.

One bit in both directions is 1-bit Adam's compressed all-reduce (arXiv 2102.02888, §4.2); int4 without error feedback
is ZeRO++'s qgZ (arXiv 2306.10209, §3.3) on one level; 16 bits are a bf16 wire whose sum is not rounded. In one shot,
with 2-norms and random rounding, it is QSGD (arXiv 1610.02132, §3.1).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from edgc.core.aggregators.aggregator import AggregatorSettings, Exchange, Law, NamedTensor, compute_dtype, shapes_of
from edgc.core.aggregators.coded import Coded, stream, write
from edgc.core.aggregators.shots import (
    Group,
    Noise,
    grouped,
    one_shot,
    one_shot_workload,
    own_part,
    owned,
    padded,
    to_owners,
    to_owners_workload,
    two_shots,
    two_shots_workload,
)
from edgc.core.aggregators.whitening import Whitening, whitened
from edgc.core.aggregators.workload import Phase, Shape, Workload, matmuls, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.settings import younger
from edgc.core.comm import Communicator, Sharded, Work
from edgc.core.ops.block_code import BITS, BlockCode, Format, Norm, Scale
from edgc.core.ops.noise import uniform
from edgc.core.policies.amounts import DENSE, Amount, Bits, plain
from edgc.core.policies.policy import Decision


class FewBitsSettings(AggregatorSettings):
    """How an element is coded; its bits come from the policy."""

    name: Literal["few_bits"]
    format: Format = Field(
        "int",
        description="int: equal steps up to the block's largest magnitude (one bit: sign and mean magnitude; two, but "
        "for rounding stochastic and norm l2: as lloyd); lloyd: levels of least squared error for normal data; float: "
        "e2m1 (4 bits), e4m3 (8), bf16 (16); float_wide: wider exponents, e3m0 (4) and e5m2 (8)",
    )
    block: PositiveInt | Literal["row"] = Field(
        128, description="Elements that share a scale; row: those of a tensor's last dimension"
    )
    scale: Scale = Field("bf16", description="The scale's precision; e8m0: a power of two, as MXFP4 and MXFP8 have it")
    rounding: Literal["nearest", "stochastic"] = Field(
        "nearest",
        description="stochastic: up or down at random, so that the mean is right; for format int of 2 to 8 bits",
    )
    norm: Norm = Field(
        "max",
        description="What a block's scale is made from, for format int of 2 to 8 bits: its largest magnitude, or its "
        "2-norm, which leaves most levels to a few large elements",
    )
    shots: Literal["two", "one"] = Field(
        "two", description="two: every part to its owner, the mean to all; one: everything to all, N - 1 messages"
    )
    second_shot: Literal["same", "bf16", "fp32"] = Field(
        "same", description="What the mean is sent in: the same code, or without a scale"
    )
    error_feedback: bool = Field(
        True, description="Keep what both roundings lose for the next step; the second one's is its owner's"
    )
    whitening: bool = younger(
        False,
        description="Make all directions of a matrix's shorter side equally large before it is coded, by the second "
        "moments of past averages: Muon's metric. Averages are then told to all ranks, not to owners only",
    )
    tells_errors: ClassVar[bool] = True

    @property
    def averages_for_owners(self) -> bool:  # type: ignore[override]
        return not self.whitening

    @property
    def laws(self) -> set[Law]:
        """What is rounded at random in both shots is right on average, unless its scale cuts off the largest."""
        unbiased = self.rounding == "stochastic" and self.second_shot != "bf16" and self.scale != "e8m0"
        return super().laws | {Law.EXACT_AT_FULL_AMOUNT} | ({Law.UNBIASED} if unbiased else set())

    def refusals(self) -> Iterator[str]:
        if self.rounding == "stochastic" and self.format != "int":
            yield f"rounding stochastic is for format int, not {self.format}; use rounding: nearest"
        if self.rounding == "stochastic" and self.error_feedback:
            yield "rounding stochastic with error_feedback: each adds noise to what the other keeps; use one of them"
        if self.norm == "l2" and self.format != "int":
            yield f"norm l2 is for format int, not {self.format}; use norm: max"
        if self.shots == "one" and self.second_shot != "same":
            yield f"second_shot {self.second_shot}: with shots: one there is none; use second_shot: same"

    def refuses(self, amount: Amount) -> str | None:
        allowed = BITS[self.format]
        if isinstance(amount, Bits) and amount < 32 and amount not in allowed:
            known = ", ".join(map(str, allowed))
            return f"bits {plain(amount)}: aggregator {self.name} with format {self.format} has codes of {known} bits"
        if amount == 1 and self.rounding == "stochastic":
            return "bits 1: a sign is not rounded at random; use rounding: nearest, or more bits"
        return None


class FewBits(Coded):
    """Per tensor: M ← G + E; a message of M's blocks to each block's owner; E ← M − decoded.

    The mean's rounding goes into its owner's E times N, so that the next mean makes up for it. To owners only, the mean
    is not rounded. What a message does not make smaller travels dense.
    """

    Settings = FewBitsSettings
    amount = Bits
    state_size: ClassVar[str] = (
        "numel (error feedback) per tensor; + min(m, n)² per matrix with whitening, and twice that for its roots"
    )
    payload_formula: ClassVar[str] = "(1 + 1/N)·numel·(bits/8 + scale/block); in one shot numel·(bits/8 + scale/block)"

    def __init__(self, settings: FewBitsSettings, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self._whitening = Whitening() if settings.whitening else None
        if self._whitening is not None:
            self.state["whitening"] = self._whitening

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        by_name = {t.name: t for t in tensors}
        groups = self._groups(shapes_of(tensors), decision, comm.size)
        wholes = [self._whole(group, by_name) for group in groups]
        found = yield from self._averaged(groups, wholes, comm, partial(self._noise, step))
        for group, (mean, error) in zip(groups, found, strict=True):
            self._take(group, by_name, mean, error, comm.rank)
        if self._whitening is not None:
            seen = [t for t in tensors if whitened((*t.tensor.shape,))]
            self._whitening.see(step, [t.name for t in seen], [t.tensor.to(compute_dtype(t.tensor)) for t in seen])

    @property
    def _sharded(self) -> Sharded | None:
        """The layout, if owners get no more than their own part."""
        return self.layout if isinstance(self.layout, Sharded) and self.settings.averages_for_owners else None

    def _moved(self, flat: Tensor, tensor: NamedTensor, back: bool = False) -> Tensor:
        """All of a tensor's elements (numel,), whitened in place, or back."""
        shape = tuple(tensor.tensor.shape)
        if self._whitening is not None and whitened(shape):
            self._whitening.move(tensor.name, flat.view(shape), back)
        return flat

    def _averaged(
        self, groups: Sequence[Group], wholes: Sequence[Tensor], comm: Communicator, noise: Noise
    ) -> Generator[Work, None, list[tuple[Tensor, Tensor]]]:
        """The mean, to owners of their own part, and this rank's error of each group's buffer."""
        if self._sharded:
            return (yield from to_owners(groups, wholes, comm, noise))
        average = two_shots if self.settings.shots == "two" else one_shot
        return (yield from average(groups, wholes, comm, noise))

    def _groups(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int) -> list[Group]:
        """What is coded alike, in one buffer."""
        by_code: dict[BlockCode, dict[str, Shape]] = {}
        for name, shape in shapes.items():
            amount = decision.amount(name)
            assert isinstance(amount, Bits)
            by_code.setdefault(self._code(shape, amount), {})[name] = shape
        if layout := self._sharded:
            return [owned(code, alike, layout) for code, alike in by_code.items()]
        owners = ranks if self.settings.shots == "two" else 1
        return [grouped(code, self._reply(code), alike, owners) for code, alike in by_code.items()]

    def _code(self, shape: Shape, bits: int) -> BlockCode:
        s = self.settings
        block = s.block if s.block != "row" else (shape or (1,))[-1]
        # three equal steps up to the largest element lose more of normal elements than one bit does
        levels = "lloyd" if (bits, s.format, s.norm, s.rounding) == (2, "int", "max", "nearest") else s.format
        return BlockCode(bits, block, levels, s.scale, s.norm)

    def _reply(self, code: BlockCode) -> BlockCode:
        second = self.settings.second_shot
        return code if second == "same" else BlockCode(16 if second == "bf16" else 32, code.block, "float")

    def _whole(self, group: Group, by_name: Mapping[str, NamedTensor]) -> Tensor:
        """M of a group (numel,). Where a tensor does not fill its last block, `_filled`."""
        first = by_name[group.names[0]].tensor
        whole = torch.zeros(group.numel, dtype=compute_dtype(first), device=first.device)
        kept = {name: self._kept(by_name[name]) for name in group.names}
        for piece, there in group.places:
            own = whole[there].copy_(by_name[piece.name].tensor.reshape(-1)[piece.within])
            if (lost := kept[piece.name]) is not None:
                own.add_(lost[piece.within])
            self._moved(own, by_name[piece.name])
            _filled(whole[there.start : there.start + padded(piece.numel, group.code.block)], piece.numel, group.code)
        return whole

    def _kept(self, tensor: NamedTensor) -> Tensor | None:
        """What is added to a tensor, flat."""
        return self.residuals.memory(tensor).reshape(-1) if self.settings.error_feedback else None

    def _noise(self, step: int, group: Group, whole: Tensor, whose: str) -> Tensor | None:
        """Uniform numbers as `whole`, that depend on the tensor's name and the element, not on the place."""
        if self.settings.rounding != "stochastic":
            return None
        noise = torch.zeros_like(whole).view(-1)
        for name in group.names:
            places = [(piece, there) for piece, there in group.places if piece.name == name]
            end = max(piece.stop for piece, _ in places)
            drawn = uniform(self.seed, stream(f"{name}/{whose}/{step}"), end, whole.device)
            for piece, there in places:
                noise[there] = drawn[piece.within]
        return noise.view_as(whole)

    def _take(
        self, group: Group, by_name: Mapping[str, NamedTensor], average: Tensor, error: Tensor, rank: int
    ) -> None:
        """`average` is of the buffer, or of what this rank owns of it."""
        own = own_part(group, rank) if self._sharded else slice(0, group.numel)
        lost: dict[str, list[Tensor]] = {name: [] for name in group.names}
        for piece, there in group.places:
            if not self._sharded:  # pieces are whole tensors
                for flat in (error, average):
                    self._moved(flat[there], by_name[piece.name], back=True)
            lost[piece.name].append(error[there])
            if own.start <= there.start < own.stop:
                write(by_name[piece.name].tensor, piece.within, average[there.start - own.start :][: piece.numel])
        for name, parts in lost.items():
            self._keep(by_name[name], parts[0] if len(parts) == 1 else torch.cat(parts))

    def _keep(self, tensor: NamedTensor, error: Tensor) -> None:
        """Remember what this rank's message lacked of a tensor, flat."""
        if self.settings.error_feedback:
            self.residuals.memory(tensor).copy_(error.view(tensor.tensor.shape))

    def errors_workload(self, shapes: Mapping[str, Shape], amounts: Sequence[Amount], itemsize: int) -> Workload:
        """M is made; coded, decoded and compared for each amount."""
        numel = sum(map(prod, shapes.values()))
        return Workload((), (memory_passes(numel, 4 + 8 * len(amounts), max(4, itemsize)),))

    def own_errors(self, tensor: NamedTensor, amounts: Sequence[Amount], drawn: str) -> Tensor:
        """Of M coded once: the second shot's rounding of the mean is not in it."""
        shape = tuple(tensor.tensor.shape)
        whole = tensor.tensor.reshape(-1).to(compute_dtype(tensor.tensor))
        for residual in self.residuals.held(tensor):
            whole = whole + residual.reshape(-1)
        found = [whole.double().square().sum()]
        whole = self._moved(whole.clone(), tensor)
        for amount in amounts:
            if not isinstance(bits := self.effective(shape, amount), Bits):
                found.append(torch.zeros_like(found[0]))
                continue
            code = self._code(shape, bits)
            length = padded(len(whole), code.block)
            values = _filled(torch.nn.functional.pad(whole, (0, length - len(whole))), len(whole), code)[None]
            noise = None
            if self.settings.rounding == "stochastic":
                noise = uniform(self.seed, stream(f"{tensor.name}/{drawn}"), length, whole.device).to(whole.dtype)[None]
            decoded = code.decode(code.encode(values, noise), length, whole.dtype)[0, : len(whole)]
            found.append(self._moved(whole - decoded, tensor, back=True).double().square().sum())
        return torch.stack(found)

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """Dense from 32 bits on, and where padding and scales make a message no smaller than the tensor in fp32."""
        if not isinstance(amount, Bits) or amount >= 32 or not prod(shape):
            return DENSE
        code = self._code(shape, amount)
        return amount if code.message_bytes(padded(prod(shape), code.block)) < 4 * prod(shape) else DENSE

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        groups = self._groups(shapes, decision, ranks)
        if self._sharded:
            return to_owners_workload(groups, max(4, itemsize))
        if self.settings.shots == "one":
            asked = one_shot_workload(groups, ranks, max(4, itemsize))
        else:
            asked = two_shots_workload(groups, max(4, itemsize))
        turned = [(min(s), max(s), min(s)) for s in shapes.values() if self.settings.whitening and whitened(s)]
        if not turned:
            return asked
        first, *others = asked.phases  # L⁻¹ M; L of the mean and of the error
        return Workload(
            (Phase((matmuls(turned), *first.kernels), first.messages), *others),
            (*asked.decode, matmuls(turned), matmuls(turned)),
        )

    def kept_bytes(self, shape: Shape, amount: Amount, itemsize: int) -> int:
        kept = super().kept_bytes(shape, amount, itemsize)
        return kept + itemsize * min(shape) ** 2 if self.settings.whitening and whitened(shape) else kept


def _filled(whole: Tensor, numel: int, code: BlockCode) -> Tensor:
    """`whole`, of whole blocks, with what is behind its first `numel` elements filled in, in place.

    With zeros a scale that is a mean would be too small for the last block; so there its own elements come once more.
    """
    rest = numel % code.block
    if rest and code.scaled_by_mean:
        last = whole[numel - rest : numel]
        whole[numel:] = last.repeat(-(-code.block // rest))[: len(whole) - numel]
    return whole
