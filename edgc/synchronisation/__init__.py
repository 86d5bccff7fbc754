"""What ranks exchange, and when, relative to the optimizer: one file per synchronisation, one line for each here."""

from edgc.synchronisation.delayed import Delayed
from edgc.synchronisation.differences import Differences
from edgc.synchronisation.dion import Dion
from edgc.synchronisation.every_step import EveryStep
from edgc.synchronisation.frozen_variance import FrozenVariance
from edgc.synchronisation.gossip import Gossip
from edgc.synchronisation.outer import Outer
from edgc.synchronisation.paced import Paced
from edgc.synchronisation.sign import Sign

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
