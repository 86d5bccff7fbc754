"""Is *my* exchange right? The laws of an average, measured on any DDP communication hook or FSDP2 reduce-scatter.

    edgc check hook module:function [--state module:function] [--fsdp] [--json]

The function is a hook `(state, bucket) -> Future`, one that takes the DDP model (with --fsdp: the FSDP2 model) and
registers its exchange, or one without arguments that makes a reduce-scatter for `set_custom_reduce_scatter`, as its
class. Compression that loses something is measured, not refused: its mean over steps must come near to that of what was
given.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from edgc.core.base.errors import EXIT_BAD_INPUT, UserError
from edgc.hooks.checked_loop import (
    SHAPES,
    SPECIAL,
    CheckedRun,
    Kind,
    RankTrace,
    Step,
    Target,
    flat,
    gradients,
    on_ranks,
)

Status = Literal["kept", "broken", "not applicable"]
#: What training suffers from, by law.
MEANING = {
    "mean": "The optimizer follows something else than the mean: another learning rate, or data that never counts.",
    "equal ranks": "Replicas drift apart, for DDP never sends parameters again.",
    "conservation": "What is left out of a step never arrives: training converges elsewhere, or not at all.",
    "not finite": "One overflow spoils all later steps, or a part of the ranks skips a step that others take.",
    "zeros and unused": "The first parameter without a gradient (frozen, unused, padded) ends training or spoils it.",
    "new buckets": "DDP makes other buckets after its first step; what was remembered then meets other parameters.",
    "resume": "A run that goes on from a checkpoint is another run.",
    "16 bits": "With bf16 or fp16 parameters averages overflow or lose more than their rounding.",
    "determinism": "The same run cannot be made again, so that no fault in it can be found.",
}
EXACT = 1e-4  # relative errors below it are rounding
SEVERAL: list[Step] = ["fresh"] * 16
CUT = 9


@dataclass(frozen=True)
class Verdict:
    """A law, whether it is kept, and what was measured."""

    law: str
    status: Status
    measured: str

    @property
    def meaning(self) -> str:
        """What training suffers from if it is broken."""
        return MEANING[self.law]


class _Failed(Exception):
    """A run did not come to its end."""


class _Check:
    """All laws of one target. `tolerance`: what the mean over all steps may lack, relative, without feedback."""

    def __init__(self, target: Target, ranks: int, steps: int, tolerance: float, seconds: float, folder: Path) -> None:
        self.target, self.ranks, self.steps, self.tolerance = target, ranks, steps, tolerance
        self._seconds, self._folder = seconds, folder
        self._known: dict[str, Any] = {}

    def verdicts(self) -> list[Verdict]:
        """One for each law. Raises `UserError` if not even a step can be made."""
        try:
            self._run(["fresh"])
        except _Failed as failure:
            late = (
                "; if its futures end with the last bucket only, say --overlap" if "no answer" in str(failure) else ""
            )
            raise UserError(f"the first step fails here: {failure}{late}") from None
        laws = (
            self.mean, self.equal_ranks, self.conservation, self.not_finite, self.zeros_and_unused, self.new_buckets,
            self.resume, self.sixteen_bits, self.determinism,
        )  # fmt: skip
        return [self._judged(law, name) for law, name in zip(laws, MEANING, strict=True)]

    def _judged(self, law: Callable[[], tuple[Status, str]], name: str) -> Verdict:
        try:
            return Verdict(name, *law())
        except _Failed as failure:
            return Verdict(name, "broken", str(failure))

    def _run(self, steps: Sequence[Step], **more: Any) -> tuple[list[Tensor], list[RankTrace]]:
        """Averages by rank, and traces."""
        traces = on_ranks(self.target, CheckedRun(steps, **more), self._folder, self.ranks, self._seconds)
        if failed := [trace for trace in traces if trace.error]:
            raise _Failed(min(failed, key=lambda trace: trace.at).error)
        return [trace.averages for trace in traces if trace.averages is not None], traces

    def _given(self, step: Step, number: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """(ranks, elements)"""
        return torch.stack([flat(gradients(step, number, rank, self.ranks), dtype) for rank in range(self.ranks)])

    def _once(self, steps: Sequence[Step], **more: Any) -> tuple[list[Tensor], list[RankTrace]]:
        """As `_run`, but what several laws look at is run once."""
        asked = repr((steps, more))
        if asked not in self._known:
            try:
                self._known[asked] = self._run(steps, **more)
            except _Failed as failure:
                self._known[asked] = failure
        if isinstance(self._known[asked], _Failed):
            raise self._known[asked]
        return self._known[asked]

    def _constant(self) -> list[Tensor]:
        """Averages of a long run with the same gradients in every step, then of a few steps with others."""
        return self._once([*["constant"] * self.steps, *["fresh"] * 3])[0]  # type: ignore[list-item]

    def _left(self, steps: int) -> tuple[Tensor, float]:
        """What each rank's gradient weighs in the mean over so many steps, × ranks; what is not of them, relative."""
        given = self._given("constant", 0)
        arrived = self._constant()[0][:steps].mean(0)
        if not arrived.isfinite().all():
            raise _Failed("averages of finite gradients are not finite")
        weights = torch.linalg.lstsq(given.T, arrived.unsqueeze(1)).solution.squeeze(1)
        return weights * self.ranks, float((arrived - weights @ given).norm() / given.mean(0).norm())

    def mean(self) -> tuple[Status, str]:
        """Ranks have equal weights, whose sum is 1: less only by what a compression lacks."""
        weights, left = self._left(self.steps)
        scale = float(weights.mean())
        first, given = self._constant()[0], self._given("constant", 0).mean(0)
        once = float((first[0] - given).norm() / given.norm())
        fresh = [self._given("fresh", number).mean(0) for number in range(self.steps, self.steps + 3)]
        late = min(float((first[self.steps + at] - mean).norm() / mean.norm()) for at, mean in enumerate(fresh))
        said = f"one step {_percent(once)} off, {self.steps} steps {_percent(_off(first[: self.steps], given))}"
        apart = float((weights / scale - 1).abs().max()) if scale else torch.inf
        lossy = left > EXACT
        fair = apart <= EXACT + min(0.5, left / abs(scale) if scale else 1.0)
        right = scale <= 1 + EXACT + left / 2 and (
            1 - scale <= EXACT + 2 * left or (lossy and scale * (1 - scale) <= 1.5 * left**2)
        )
        if not (fair and right):
            return "broken", f"ranks weigh {', '.join(f'{w:.2f}' for w in weights)}, in place of 1.00 each; {said}"
        if left < 0.01 and late > 0.5:
            return "broken", f"a new gradient is {_percent(late)} off where a repeated one is right: averages come late"
        return "kept", said if lossy else f"exact: {said}"

    def equal_ranks(self) -> tuple[Status, str]:
        """Averages have the same bits on all ranks."""
        if self.target.fsdp:
            return "not applicable", "a rank of FSDP2 has its own part only"
        first, *others = self._constant()
        different = sum(int((first != other).any(1).sum()) for other in others)
        most = max(float((first - other).abs().max()) for other in others)
        return ("broken" if different else "kept"), f"largest difference {most:.1e}"

    def _now_apart(self, first: Tensor, others: Sequence[Tensor]) -> bool:
        """Whether ranks have different averages here, but not where all is as usual."""
        differ = not self.target.fsdp and not all(torch.equal(first, other) for other in others)
        return differ and self.equal_ranks()[0] == "kept"

    def conservation(self) -> tuple[Status, str]:
        """What a step leaves out arrives later, or is nothing in expectation: the mean's error falls with steps."""
        early, late = (self._left(steps)[1] for steps in (self.steps // 4, self.steps))
        said = f"after {self.steps // 4} and {self.steps} steps {_percent(early)} and {_percent(late)} is missing"
        if late <= EXACT:
            return "kept", "nothing is left out"
        return ("kept" if late <= max(self.tolerance, early / 1.6) else "broken"), said

    def not_finite(self) -> tuple[Status, str]:
        """NaN or infinity on one rank is seen or skipped by all alike, and later steps know nothing of it."""
        steps = [*SEVERAL, "nan", *SEVERAL[:4], "inf", *SEVERAL[:4]]
        by_rank, _ = self._run(steps)  # type: ignore[arg-type]
        finite = [averages.isfinite() for averages in by_rank]
        at = [number for number, step in enumerate(steps) if step in ("nan", "inf")]
        after = [number for number in range(len(steps)) if number not in at]
        for number in after:
            if not all(bool(each[number].all()) for each in finite):
                share = 1 - float(finite[0][number].double().mean())
                return "broken", f"{number - at[0]} steps after a NaN {_percent(share)} of a step is not finite"
        for number in at:
            if not all(torch.equal(finite[0][number], other[number]) for other in finite[1:]):
                return "broken", f"{steps[number]} is seen by a part of the ranks"
        seen = [steps[number] for number in at if not finite[0][number].all()]
        return "kept", f"{' and '.join(seen)} seen by all ranks" if seen else "skipped by all ranks"

    def zeros_and_unused(self) -> tuple[Status, str]:
        """Zeros give zeros, also at the beginning; what one rank does not use is averaged with its zeros."""
        unused: list[Step] = [] if self.target.fsdp else ["unused"] * 3
        steps: list[Step] = ["zeros", "zeros", *SEVERAL, *unused, "fresh"]
        (averages, *others), _ = self._run(steps)
        if not averages.isfinite().all():
            at = int((~averages.isfinite()).any(1).nonzero()[0])
            return "broken", f"not finite in step {at} ({steps[at]})"
        if averages[:2].any():
            return "broken", f"zeros give {float(averages[:2].abs().max()):.1e}"
        if not averages[2].any():
            return "broken", "after zeros everything is zero"
        if self._now_apart(averages, others):
            return "broken", "ranks get different averages"
        weights = self._left(self.steps)[0] / self.ranks
        off = [_off(averages[n : n + 1], weights @ self._given(step, n)) for n, step in enumerate(steps) if n > 1]
        usual = max(*off[len(SEVERAL) // 2 : len(SEVERAL)], off[-1])
        worst = max(off[len(SEVERAL) : -1], default=0.0)
        said = f"with {SPECIAL} unused on one rank {_percent(worst)} off, else {_percent(usual)}" if unused else ""
        return ("broken" if worst > 2 * usual + EXACT else "kept"), said or "zeros stay zeros"

    def new_buckets(self) -> tuple[Status, str]:
        """Where DDP makes new buckets after a step, the mean over steps is as near as where it does not."""
        if self.target.fsdp:
            return "not applicable", "FSDP2 keeps its units"
        steps, given = self.steps // 2, self._given("constant", 0).mean(0)
        (rebuilt, *others), _ = self._run(["constant"] * steps, rebuild=True)  # type: ignore[arg-type]
        if self._now_apart(rebuilt, others):
            return "broken", "ranks get different averages"
        was, now = _off(self._constant()[0][:steps], given), _off(rebuilt, given)
        said = f"after {steps} steps {_percent(now)} off, {_percent(was)} with the same buckets"
        return ("kept" if now <= 1.5 * was + self.tolerance else "broken"), said

    def resume(self) -> tuple[Status, str]:
        """What goes on from a saved state in new processes has the bits of what was not interrupted."""
        whole, traces = self._once(SEVERAL, save_after=CUT)
        if unsaved := traces[0].unsaved:
            return "not applicable", f"its state cannot be saved: {unsaved}"
        if not all(map(torch.equal, whole, self._once(SEVERAL)[0])):
            return "not applicable", "two runs differ already"
        states = [trace.state for trace in traces]
        parts, _ = self._run(SEVERAL[CUT + 1 :], first=CUT + 1, load=states)
        difference = max(float((one[CUT + 1 :] - other).abs().max()) for one, other in zip(whole, parts, strict=True))
        kept = f"{sum(map(len, filter(None, states)))} bytes" if any(states) else "no state"
        return ("kept" if difference == 0 else "broken"), f"{kept} saved; largest difference {difference:.1e}"

    def sixteen_bits(self) -> tuple[Status, str]:
        """Averages of bf16 and fp16 are as near as those of fp32, but for rounding; sums may exceed what fp16 holds."""
        steps, said = self.steps // 2, []
        was = _off(self._constant()[0][:steps], self._given("constant", 0).mean(0))
        for dtype in (torch.bfloat16, torch.float16):
            fits = 40000 * float(self._left(self.steps)[0].mean()) < torch.finfo(torch.float16).max
            last: list[Step] = ["large"] if dtype is torch.float16 and fits else []
            (averages, *_), _ = self._run(["constant"] * steps + last, dtype=dtype)  # type: ignore[operator]
            now = _off(averages[:steps], self._given("constant", 0, dtype).mean(0))
            said.append(f"{str(dtype).removeprefix('torch.')} {_percent(now)} off")
            if not now <= 1.5 * was + max(self.tolerance, 4 * torch.finfo(dtype).eps):
                return "broken", f"{said[-1]}, fp32 {_percent(was)}"
            if last and not averages[-1].isfinite().all():
                return "broken", "fp16 gradients of 40000 overflow, whose mean does not"
        return "kept", ", ".join(said)

    def determinism(self) -> tuple[Status, str]:
        """Two runs have the same bits."""
        (one, _), (other, _) = self._once(SEVERAL), self._once(SEVERAL, save_after=CUT)
        difference = max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))
        same = all(map(torch.equal, one, other))
        return ("kept" if same else "broken"), f"largest difference of two runs {difference:.1e}"


def _off(averages: Tensor, given: Tensor) -> float:
    """Of the mean over steps, relative."""
    return float((averages.mean(0) - given).norm() / given.norm())


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def check(
    target: Target, ranks: int = 3, steps: int = 192, tolerance: float = 0.02, seconds: float = 60
) -> list[Verdict]:
    """A verdict for each law of `MEANING`, in that order. Ranks are processes of this machine that talk by gloo.

    Args:
        steps: of the long runs; a code that sends a hundredth takes some hundreds until its feedback shows.
        tolerance: relative error of the mean over all steps that a code without error feedback may keep.
        seconds: that all ranks have for one law.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # processes are forked from this one
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _Check(target, ranks, steps, tolerance, seconds, Path(folder)).verdicts()
    finally:
        torch.set_num_threads(threads)


def find(name: str) -> Any:
    """What `module:function` names. Raises `UserError` if there is no such thing."""
    module, _, path = name.partition(":")
    if not path:
        raise UserError(f"{name}: must be module:function, as my_package.hooks:my_hook")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` has it
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise UserError(f"{name}: cannot import {module}: {type(error).__name__}: {error}") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise UserError(f"{name}: {getattr(found, '__name__', found)} has no {part}")
        found = getattr(found, part)
    return found


def target_of(
    what: Any, kind: Kind | None = None, fsdp: bool = False, state: Any = None, in_turn: bool = True
) -> Target:
    """What is to be checked. `kind` None: by the number of arguments. Raises `UserError` if it fits nothing."""
    if kind is None:
        try:
            asked = inspect.signature(what).parameters.values()
        except (TypeError, ValueError):
            raise UserError(f"{what!r}: is nothing that can be called; say --as hook|register|reduce_scatter") from None
        needed = sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in asked)
        kinds: dict[int, Kind] = {0: "reduce_scatter", 1: "register", 2: "hook"}
        if needed not in kinds:
            raise UserError(f"{what!r}: takes {needed} arguments; a hook takes 2 (state, bucket), a function that "
                            "registers 1 (the model), one that gives a reduce-scatter none")  # fmt: skip
        kind = kinds[needed]
    if kind == "hook" and fsdp:
        raise UserError("--fsdp: FSDP2 has no hook (state, bucket); name a reduce-scatter, or what registers one")
    if state is not None and kind != "hook":
        raise UserError(f"--state: is of a hook, but this is a {kind}; let it make its state itself")
    return Target(what, kind, fsdp or kind == "reduce_scatter", state, in_turn)


def main(arguments: Sequence[str] | None = None) -> int:
    """`edgc check hook`. Returns the exit code: 1 if a law is broken, 2 if nothing can be checked."""
    parser = argparse.ArgumentParser(
        "edgc check hook", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("target", metavar="module:function", help="what is checked; the current folder is importable")
    parser.add_argument("--state", metavar="module:function", help="makes a hook's state, on each rank; default: None")
    parser.add_argument("--as", dest="kind", choices=["hook", "register", "reduce_scatter"],
                        help="what the function is; default: by the number of its arguments")  # fmt: skip
    parser.add_argument("--fsdp", action="store_true", help="the function is given an FSDP2 model")
    parser.add_argument(
        "--overlap",
        action="store_true",
        help="hand over all buckets at once, for hooks whose futures end with the last one",
    )
    parser.add_argument("--ranks", type=int, default=3, help="processes on this machine (default 3)")
    parser.add_argument("--steps", type=int, default=192, help="of the long runs (default 192)")
    parser.add_argument("--tolerance", type=float, default=0.02,
                        help="what the mean over all steps may lack without feedback (default 0.02)")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=60, help="that a law's ranks may take (default 60)")
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    asked = parser.parse_args(arguments)
    try:
        if asked.ranks < 2 or asked.steps < 16:
            raise UserError(f"--ranks {asked.ranks} --steps {asked.steps}: must be at least 2 and 16")
        state = asked.state and find(asked.state)
        target = target_of(find(asked.target), asked.kind, asked.fsdp, state, in_turn=not asked.overlap)
        verdicts = check(target, asked.ranks, asked.steps, asked.tolerance, asked.seconds)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    broken = any(verdict.status == "broken" for verdict in verdicts)
    if asked.json:
        laws = [asdict(verdict) | {"meaning": verdict.meaning} for verdict in verdicts]
        print(
            json.dumps({"target": asked.target, "kept": not broken, "torch": torch.__version__, "laws": laws}, indent=1)
        )
    else:
        print(table(verdicts))
    return int(broken)


def table(verdicts: Sequence[Verdict]) -> str:
    """A line for each law; below a broken one, what that means."""
    lines = [f"{'law':18}{'':16}measured ({len(SHAPES)} parameters)"]
    for verdict in verdicts:
        lines.append(f"{verdict.law:18}{verdict.status:16}{verdict.measured}")
        if verdict.status == "broken":
            lines.append(f"{'':34}{verdict.meaning}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
