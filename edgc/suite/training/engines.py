"""What trains in a run's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgc.core.policies.stage_alignment import ExchangeCost
from edgc.suite.config import RunSpec

if TYPE_CHECKING:
    from edgc.suite.backends.megatron.engine import MegatronEngine
    from edgc.suite.backends.megatron.process import Place
    from edgc.suite.backends.plain_engine import PlainEngine
    from edgc.suite.backends.stacked_engine import StackedEngine

    Engine = MegatronEngine | PlainEngine | StackedEngine


def build_engine(
    spec: RunSpec, place: Place, vocab_size: int, known_costs: list[ExchangeCost | None] | None = None
) -> Engine:
    """The engine that `spec` names; only what it needs is imported, which takes seconds. Collective.

    `known_costs`: of an earlier start of the same run; None: measured where the policy needs them.
    """
    if spec.loop == "megatron":
        from edgc.suite.backends.megatron.engine import MegatronEngine

        return MegatronEngine(spec, place, vocab_size, known_costs)
    if spec.loop == "stacked":
        from edgc.suite.backends.stacked_engine import StackedEngine

        return StackedEngine(spec, place, vocab_size, known_costs)
    if spec.training.shard == "full":
        from edgc.suite.backends.fsdp_engine import FSDPEngine

        return FSDPEngine(spec, place, vocab_size, known_costs)
    from edgc.suite.backends.ddp_engine import DDPEngine

    return DDPEngine(spec, place, vocab_size, known_costs)
