"""How much and when to compress: one file per rule, one line per policy here."""

from edgc.core.policies.accordion import Accordion
from edgc.core.policies.budget import Budget
from edgc.core.policies.edgc import Edgc
from edgc.core.policies.edgc_bits import EdgcBits
from edgc.core.policies.edgc_measured import EdgcMeasured
from edgc.core.policies.edgc_released import EdgcLoss, EdgcReleased
from edgc.core.policies.falling_ratio import FallingRatio
from edgc.core.policies.fixed import Fixed
from edgc.core.policies.lgreco import LGreco
from edgc.core.policies.ramp import Ramp

POLICIES = {
    "fixed": Fixed,
    "edgc": Edgc,
    "edgc_released": EdgcReleased,
    "edgc_loss": EdgcLoss,
    "edgc_measured": EdgcMeasured,
    "edgc_bits": EdgcBits,
    "lgreco": LGreco,
    "accordion": Accordion,
    "falling_ratio": FallingRatio,
    "budget": Budget,
    "ramp": Ramp,
}
