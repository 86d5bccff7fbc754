"""How much and when to compress: one file per rule, one line per policy here."""

from edgc.policies.accordion import Accordion
from edgc.policies.budget import Budget
from edgc.policies.edgc import Edgc
from edgc.policies.edgc_bits import EdgcBits
from edgc.policies.edgc_loss import EdgcLoss
from edgc.policies.edgc_measured import EdgcMeasured
from edgc.policies.edgc_released import EdgcReleased
from edgc.policies.falling_ratio import FallingRatio
from edgc.policies.fixed import Fixed
from edgc.policies.lgreco import LGreco

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
}
