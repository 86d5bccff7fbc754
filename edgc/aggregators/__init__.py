"""How a gradient crosses the network: one file per mechanism, one line per aggregator here."""

from edgc.aggregators.controls import NoExchange, TorchPowerSGD
from edgc.aggregators.dense import Dense
from edgc.aggregators.few_bits import FewBits
from edgc.aggregators.lossless import Lossless
from edgc.aggregators.lowrank import LowRank
from edgc.aggregators.projection import Projection
from edgc.aggregators.sketch import Sketch
from edgc.aggregators.topk import TopK

AGGREGATORS = {
    "dense": Dense,
    "few_bits": FewBits,
    "lossless": Lossless,
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
