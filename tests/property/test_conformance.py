"""Every registered aggregator keeps its laws: of averages, costs, owners' parts, and state."""

from edgc.tools.laws.average_laws import *  # noqa: F403
from edgc.tools.laws.cost_laws import *  # noqa: F403
from edgc.tools.laws.shard_laws import *  # noqa: F403
from edgc.tools.laws.state_laws import *  # noqa: F403
