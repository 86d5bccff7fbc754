"""From a method to the synchronisation that a training loop drives: its parts, made and joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgc.core.base.lazy import dist
from edgc.core.comm import Communicator, TorchCommunicator
from edgc.core.exchange.costs import measure
from edgc.core.exchange.gradient_exchange import GradientExchange, compressible
from edgc.core.policies import POLICIES
from edgc.core.policies.policy import Context
from edgc.core.policies.stage_alignment import ExchangeCost
from edgc.core.settings.method import MECHANISMS, Method
from edgc.core.synchronisation import SYNCHRONISATIONS
from edgc.core.synchronisation.synchronisation import Synchronisation

#: What exchanges took before training, by pipeline stage; empty where the policy does not ask for it.
Costs = list[ExchangeCost | None]


def assemble(
    method: Method,
    shapes: Mapping[str, tuple[int, ...]],
    iterations: int,
    seed: int,
    comm: Communicator,
    device: Any,
    costs: Sequence[ExchangeCost | None] | None = None,
    *,
    agreement: Communicator | None = None,
    stage: int = 0,
    stages: TorchCommunicator | None = None,
) -> tuple[Synchronisation, Costs]:
    """The synchronisation of one pipeline stage's parameters, and what exchanges took. Collective over the job.

    Args:
        shapes: of all parameters that are exchanged on this rank.
        iterations: steps of the whole run.
        comm: the data-parallel group. agreement: the stage's data- and tensor-parallel ranks; None: `comm` has all.
        costs: of an earlier start of the same run; none: exchanges are timed where the policy needs it.
        stages: this rank's peers on all pipeline stages, by stage; None: there is one stage.
    """
    kind, agreement = MECHANISMS[method.aggregator.name], agreement or comm
    may = compressible(shapes, kind.amount, method.placement.exclude)
    own: tuple[Any, ExchangeCost | None] = may, None
    timed = method.policy.needs_costs and not costs
    if timed:
        own = may, measure(kind(method.aggregator, seed=seed), shapes, may, comm, agreement, device)
        comm.ledger.forget()  # not a step's traffic
    by_stage: list[Any] = [own]
    if stages is not None:
        by_stage *= stages.size
        dist.all_gather_object(by_stage, own, group=stages.group)
    known = [cost for _, cost in by_stage] if timed else list(costs or ())
    settings = method.synchronisation
    rounds = settings.exchanges(iterations)
    context = Context(stage, len(by_stage), rounds, may, by_stage[0][0], known, method.block)
    policy = POLICIES[method.policy.name](method.policy, context)
    compresses = stage in (method.placement.stages or (stage,))
    aggregator = kind(method.aggregator, seed=seed)
    exchange = GradientExchange(
        aggregator, policy, comm, agreement, may, stage, stages, compresses, method.placement.scale
    )
    return SYNCHRONISATIONS[settings.name](settings, exchange, iterations), known
