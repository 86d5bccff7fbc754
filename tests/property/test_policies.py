"""Every registered policy keeps its laws."""

from edgc.tools.laws.policy_laws import *  # noqa: F403
