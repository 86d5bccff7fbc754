"""How a gradient crosses the network: one file per mechanism, one line per aggregator here."""

from edgc.core.aggregators.alternating import Alternating
from edgc.core.aggregators.batched import Batched
from edgc.core.aggregators.bitmap_values import BitmapValues
from edgc.core.aggregators.chunk_topk import ChunkTopK
from edgc.core.aggregators.controls import NoExchange, TorchPowerSGD
from edgc.core.aggregators.dct import Dct
from edgc.core.aggregators.dense import Dense
from edgc.core.aggregators.dgc import DGC
from edgc.core.aggregators.few_bits import FewBits
from edgc.core.aggregators.global_qsgd import GlobalQSGD
from edgc.core.aggregators.loco import LoCo
from edgc.core.aggregators.lossless import Lossless
from edgc.core.aggregators.lowrank import LowRank
from edgc.core.aggregators.projection import Projection
from edgc.core.aggregators.random_k import RandomK
from edgc.core.aggregators.sidco import SIDCo
from edgc.core.aggregators.sketch import Sketch
from edgc.core.aggregators.topk import TopK

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
