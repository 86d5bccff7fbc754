"""What ranks exchange, and when, relative to the optimizer: one file per synchronisation, one line for each here."""

from edgc.synchronisation.delayed import Delayed
from edgc.synchronisation.every_step import EveryStep
from edgc.synchronisation.outer import Outer

SYNCHRONISATIONS = {
    "every_step": EveryStep,
    "delayed": Delayed,
    "outer": Outer,
}
