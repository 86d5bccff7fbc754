"""What ranks exchange, and when, relative to the optimizer: one file per synchronisation, one line for each here."""

from edgc.core.synchronisation.cdadam import Differences
from edgc.core.synchronisation.delayed import Delayed
from edgc.core.synchronisation.demo import Sign
from edgc.core.synchronisation.dion import Dion
from edgc.core.synchronisation.every_step import EveryStep
from edgc.core.synchronisation.gossip import Gossip
from edgc.core.synchronisation.onebit_adam import FrozenVariance
from edgc.core.synchronisation.outer import Outer
from edgc.core.synchronisation.paced import Paced

SYNCHRONISATIONS = {
    "every_step": EveryStep,
    "delayed": Delayed,
    "outer": Outer,
    "paced": Paced,
    "differences": Differences,
    "dion": Dion,
    "frozen_variance": FrozenVariance,
    "gossip": Gossip,
    "sign": Sign,
}
