"""Laws of the DDP hook between real processes over gloo. Prints what each check found, by name; asserts nothing.

ddp_hook.py    (2 processes)
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from edgc.core.base.errors import UserError
from edgc.torch_ddp import DDPExchange, compress

VOCAB, WIDTH, TOKENS, STEPS = 64, 48, 96, 6
SMALL_BUCKETS, ONE_BUCKET = 0.008, 100.0  # MB; 48·48 fp32 numbers are 0.009
POWERSGD = {"method": "powersgd", "policy": {"rank": 4}}
EDGC = {
    "method": "edgc",
    "policy": {
        "window": 2, "alpha": 0.5, "max_rank": 8, "warmup_fraction": 0, "warmup_limit": 0.1, "alignment": False,
    },
}  # fmt: skip
LOSS = {
    "method": "edgc_loss",
    "policy": {"window": 2, "max_rank": 8, "warmup_fraction": 0, "warmup_limit": 0.1},
}
ACCORDION = {"method": "accordion", "policy": {"window": 2, "ranks": (4, 8)}}


class Net(torch.nn.Module):
    """Matrices, vectors, and a branch that a forward pass may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, WIDTH)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.branch = torch.nn.Linear(WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens: Tensor, branch: bool = True) -> Tensor:
        hidden = self.embedding(tokens)
        for layer in (*self.layers, *([self.branch] if branch else [])):
            hidden = hidden + torch.tanh(layer(hidden))
        return torch.nn.functional.cross_entropy(self.head(hidden).float(), tokens.roll(1))


class Run:
    """A model under DDP with an optimizer; `method` None: DDP as it is."""

    def __init__(
        self,
        settings: dict[str, Any] | None,
        bucket_mb: float = SMALL_BUCKETS,
        dtype: torch.dtype = torch.float32,
        scaler: torch.amp.GradScaler | None = None,
        tell_scaler: bool = True,
        autocast: bool = False,
        **options: Any,
    ) -> None:
        torch.manual_seed(0)
        self.ddp = DistributedDataParallel(Net().to(dtype), bucket_cap_mb=bucket_mb, **options)  # type: ignore[arg-type]
        self.scaler, self.autocast = scaler, autocast
        self.exchange: DDPExchange | None = None
        if settings is not None:
            told = scaler if tell_scaler else None
            self.exchange = compress(self.ddp, iterations=4 * STEPS, scaler=told, **settings)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.05, momentum=0.9)

    def backward(self, step: int, micro: int = 0, **options: Any) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * step + 10 * micro + dist.get_rank())
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):  # backward inside, as some do
            loss = self.ddp(torch.randint(VOCAB, (TOKENS,), generator=generator), **options)
            if self.exchange is not None:
                self.exchange.loss(loss)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return loss.detach()

    def update(self) -> None:
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()

    def train(self, steps: range = range(STEPS), **options: Any) -> Run:
        for step in steps:
            self.backward(step, **options)
            self.update()
        return self

    @property
    def flat(self) -> Tensor:
        return torch.cat([p.detach().float().reshape(-1) for p in self.ddp.parameters()])

    @property
    def residuals(self) -> dict[str, Tensor]:
        assert self.exchange is not None
        return self.exchange.own_state()["exchange"]["aggregator"]["residuals"]

    @property
    def num_buckets(self) -> int:
        sizes: Any = self.ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"]
        return len(sizes.split(","))


def ranks_equal(tensor: Tensor) -> bool:
    other = tensor.clone()
    dist.broadcast(other, 0)
    return all_ranks(torch.equal(tensor, other))


def all_ranks(verdict: bool) -> bool:
    votes = torch.tensor(int(verdict))
    dist.all_reduce(votes, op=dist.ReduceOp.MIN)
    return bool(votes)


def distance(one: Run, other: Run) -> float:
    return float((one.flat - other.flat).abs().max())


def dense_equals_plain_ddp() -> dict[str, float]:
    """Distance of the parameters by DDP's options; where that is one, some parameters are unused at the end."""
    found = {}
    for option in ("gradient_as_bucket_view", "find_unused_parameters", "static_graph"):
        runs = [Run(settings, **{option: True}).train(range(3)) for settings in ({"method": "dense"}, None)]
        for run in runs:
            run.train(range(3, STEPS), branch=option != "find_unused_parameters")
        found[option] = distance(*runs)
    return found


def accumulation_equals_plain_ddp() -> float:
    ours, plain = Run({"method": "dense"}), Run(None)
    for run in (ours, plain):
        for step in range(STEPS):
            with run.ddp.no_sync():
                run.backward(step, 0)
                run.backward(step, 1)
            run.backward(step, 2)
            run.update()
    assert ours.exchange is not None
    assert ours.exchange.step == STEPS
    return distance(ours, plain)


def buckets_do_not_matter() -> dict[str, Any]:
    several, one = Run(POWERSGD).train(), Run(POWERSGD, ONE_BUCKET).train()
    return {
        "buckets": [several.num_buckets, one.num_buckets],
        "distance": distance(several, one),
        "equal": ranks_equal(several.flat),
    }


def nothing_is_lost() -> dict[str, float]:
    """Largest |mean(gradient + residual before) − (average + mean residual after)| over steps and matrices.

    Where a branch is not used its gradient is zero: on one rank in some steps, in others on both.
    """
    unused = [(True, True), (False, True), (False, False), (True, False), (False, False), (True, True)]
    options: dict[str, dict[str, Any]] = {"": {}, "views": {"gradient_as_bucket_view": True}}
    found = {"used": _most_lost([(True, True)] * STEPS, True)}
    for name, each in options.items():
        for to_none in (True, False):
            found[f"{name} {to_none}"] = _most_lost(unused, to_none, find_unused_parameters=True, **each)
    return found


def _most_lost(branch: list[tuple[bool, bool]], to_none: bool, **options: Any) -> float:
    run, alone, worst = Run(POWERSGD, **options), Run(None), 0.0
    for step, used in enumerate(branch):
        alone.ddp.module.load_state_dict(run.ddp.module.state_dict())
        with alone.ddp.no_sync():
            alone.backward(step, branch=used[dist.get_rank()])
        before = {name: kept.clone() for name, kept in run.residuals.items()}
        run.backward(step, branch=used[dist.get_rank()])
        for (name, ours), own in zip(run.ddp.module.named_parameters(), alone.ddp.parameters(), strict=True):
            lost = run.residuals[name] - before.get(name, torch.zeros(())) if name in run.residuals else 0
            difference = (torch.zeros_like(own) if own.grad is None else own.grad) - lost
            dist.all_reduce(difference)
            average = torch.zeros_like(ours) if ours.grad is None else ours.grad
            worst = max(worst, float((difference / dist.get_world_size() - average).abs().max()))
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=to_none)
        alone.optimizer.zero_grad()
    return worst


def bytes_are_counted() -> dict[str, Any]:
    run = Run(POWERSGD).train(range(1))
    assert run.exchange is not None
    exchange = run.exchange.synchronisation.exchange
    shapes = {name: tuple(p.shape) for name, p in run.ddp.module.named_parameters()}
    ranks = {record["parameter"]: record["rank"] for record in run.exchange.decisions()}
    return {
        "ledger": run.exchange.ledger.take()["gradient"].payload_bytes,
        "formula": exchange.aggregator.workload(shapes, exchange._begun.decision, exchange.comm.size).payload,
        "ranks": ranks,
    }


def resumed_is_uninterrupted() -> dict[str, Any]:
    """Whether equal, and the ranks at the end, by method.

    Cut inside a window; the fresh model's first step has other buckets than the uninterrupted one's.
    """
    found = {}
    for settings in (POWERSGD, EDGC, LOSS, ACCORDION):
        whole, first, second = Run(settings).train(), Run(settings).train(range(3)), Run(settings)
        file = io.BytesIO()
        states = [first.ddp.module.state_dict(), first.optimizer.state_dict(), first.exchange.state_dict()]  # type: ignore[union-attr]
        torch.save(states, file)
        file.seek(0)
        model, optimizer, exchange = torch.load(file, weights_only=True)
        second.ddp.module.load_state_dict(model)
        second.optimizer.load_state_dict(optimizer)
        second.exchange.load_state_dict(exchange)  # type: ignore[union-attr]
        second.train(range(3, STEPS))
        ranks = {record["rank"] for record in second.exchange.decisions()}  # type: ignore[union-attr]
        found[settings["method"]] = [all_ranks(torch.equal(whole.flat, second.flat)), *ranks]
    return found


def low_precision() -> dict[str, Any]:
    """Mean loss of the first and last step: bf16 parameters, and fp32 parameters under autocast."""
    found: dict[str, Any] = {}
    for name, options in (("parameters", {"dtype": torch.bfloat16}), ("autocast", {"autocast": True})):
        run = Run(POWERSGD, **options)  # type: ignore[arg-type]
        first = run.backward(0)
        run.update()
        last = run.train(range(1, 20)).backward(0)
        found[name] = {
            "losses": [float(first), float(last)],
            "equal": ranks_equal(run.flat),
            "residuals": sorted({str(kept.dtype) for kept in run.residuals.values()}),
        }
    return found


def scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)


def scale_does_not_matter() -> bool:
    """Training with a scale that doubles every other step equals training without one."""
    return torch.equal(Run(POWERSGD, scaler=scaler()).train().flat, Run(POWERSGD).train().flat)


def overflows_are_forgotten() -> dict[str, Any]:
    """One rank's gradient overflows in one step."""
    found = {}
    for name, tell in (("told", True), ("not told", False)):
        run = Run(POWERSGD, scaler=scaler(), tell_scaler=tell).train(range(2))
        poisoned = run.ddp.module.layers[1].weight  # type: ignore[union-attr,index]
        handle = poisoned.register_hook(lambda gradient: gradient * (float("inf") if dist.get_rank() else 1))  # type: ignore[union-attr]
        before = run.flat
        run.train(range(2, 3))
        handle.remove()
        skipped = torch.equal(before, run.flat)
        kept = sorted(run.residuals)
        run.train(range(3, STEPS))
        finite = all(bool(kept.isfinite().all()) for kept in run.residuals.values())
        found[name] = {
            "skipped": skipped,
            "kept": kept,
            "finite": finite and bool(run.flat.isfinite().all()),
            "moved": not torch.equal(before, run.flat),
            "equal": ranks_equal(run.flat),
        }
    return found


def the_model_s_group_counts() -> dict[str, int]:
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    run = Run(POWERSGD, process_group=groups[dist.get_rank()]).train(range(1))
    assert run.exchange is not None
    return {tag: charge.payload_bytes for tag, charge in run.exchange.ledger.take().items()}


def costs_are_measured() -> dict[str, Any]:
    run = Run({"method": "edgc", "policy": {"window": 4, "alpha": 0.5, "warmup_fraction": 0, "warmup_limit": 0.2}})
    assert run.exchange is not None
    return {"charged": sorted(run.exchange.ledger.take()), "trained": run.train().exchange.step}  # type: ignore[union-attr]


def loss_is_missed() -> str:
    run = Run(LOSS)
    run.exchange.loss = lambda loss: None  # type: ignore[union-attr,method-assign]
    try:
        run.backward(0)
    except UserError as error:
        return str(error)
    return ""


CHECKS: tuple[Callable[[], Any], ...] = (
    dense_equals_plain_ddp, accumulation_equals_plain_ddp, buckets_do_not_matter, nothing_is_lost, bytes_are_counted,
    resumed_is_uninterrupted, low_precision, scale_does_not_matter, overflows_are_forgotten, the_model_s_group_counts,
    costs_are_measured, loss_is_missed,
)  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    report = {check.__name__: check() for check in CHECKS}
    report["imports_megatron"] = "megatron" in sys.modules
    if dist.get_rank() == 0:
        print(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
