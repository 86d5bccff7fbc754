"""How a gradient crosses the network: one file per mechanism, one line per aggregator here."""

from edgc.aggregators.alternating import Alternating
from edgc.aggregators.batched import Batched
from edgc.aggregators.controls import NoExchange, TorchPowerSGD
from edgc.aggregators.dense import Dense
from edgc.aggregators.few_bits import FewBits
from edgc.aggregators.lowrank import LowRank
from edgc.aggregators.projection import Projection
from edgc.aggregators.sketch import Sketch
from edgc.aggregators.topk import TopK

AGGREGATORS = {
    "dense": Dense,
    "alternating": Alternating,
    "batched": Batched,
    "few_bits": FewBits,
    "lowrank": LowRank,
    "projection": Projection,
    "sketch": Sketch,
    "topk": TopK,
}

#: What methods are compared with in timings only: these do not average as an aggregator must.
CONTROLS = {
    "none": NoExchange,
    "torch_powersgd": TorchPowerSGD,
}
