"""How a gradient crosses the network: one file per mechanism, one line per aggregator here."""

from edgc.aggregators.dense import Dense
from edgc.aggregators.lowrank import LowRank
from edgc.aggregators.projection import Projection
from edgc.aggregators.topk import TopK

AGGREGATORS = {
    "dense": Dense,
    "lowrank": LowRank,
    "projection": Projection,
    "topk": TopK,
}
