"""How much and when to compress: one file per rule, one line per policy here."""

from edgc.policies.edgc import Edgc
from edgc.policies.fixed import Fixed

POLICIES = {
    "fixed": Fixed,
    "edgc": Edgc,
}
