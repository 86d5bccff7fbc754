"""Every registered aggregator keeps its laws: of averages, costs, owners' parts, and state."""

from edgc.tools.laws.aggregator_laws import *  # noqa: F403
