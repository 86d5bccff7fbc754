"""How a gradient crosses the network: one file per mechanism, one line per aggregator here."""

from edgc.aggregators.alternating import Alternating
from edgc.aggregators.batched import Batched
from edgc.aggregators.bitmap_values import BitmapValues
from edgc.aggregators.chunk_topk import ChunkTopK
from edgc.aggregators.controls import NoExchange, TorchPowerSGD
from edgc.aggregators.dct import Dct
from edgc.aggregators.dense import Dense
from edgc.aggregators.dgc import DGC
from edgc.aggregators.few_bits import FewBits
from edgc.aggregators.global_qsgd import GlobalQSGD
from edgc.aggregators.loco import LoCo
from edgc.aggregators.lossless import Lossless
from edgc.aggregators.lowrank import LowRank
from edgc.aggregators.projection import Projection
from edgc.aggregators.random_k import RandomK
from edgc.aggregators.sidco import SIDCo
from edgc.aggregators.sketch import Sketch
from edgc.aggregators.topk import TopK

AGGREGATORS = {
    "dense": Dense,
    "alternating": Alternating,
    "batched": Batched,
    "bitmap_values": BitmapValues,
    "chunk_topk": ChunkTopK,
    "dct": Dct,
    "dgc": DGC,
    "few_bits": FewBits,
    "global_qsgd": GlobalQSGD,
    "loco": LoCo,
    "lossless": Lossless,
    "lowrank": LowRank,
    "projection": Projection,
    "random_k": RandomK,
    "sidco": SIDCo,
    "sketch": Sketch,
    "topk": TopK,
}

#: What methods are compared with in timings only: these do not average as an aggregator must.
CONTROLS = {
    "none": NoExchange,
    "torch_powersgd": TorchPowerSGD,
}
