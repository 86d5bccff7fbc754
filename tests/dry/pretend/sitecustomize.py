"""Lets every Python process that finds this file on its path believe in one GPU, on which nothing is computed.

A process that would compute (a rank of a training, a benchmark) becomes a rank of `edgc.tools.dry`. To all others,
torch says that there is a GPU.
"""

import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder

MODEL = "H100"


def believe(torch):
    """What a process asks that computes nothing."""
    said = {
        "is_available": True, "device_count": 1, "get_device_name": f"{MODEL} (nothing is computed)",
        "get_device_capability": (9, 0), "get_arch_list": ["sm_90"],
    }  # fmt: skip
    for name, value in said.items():
        setattr(torch.cuda, name, lambda *unused, value=value: value)


def become_a_rank(cluster, folder):
    """From now on tensors on a GPU hold no data."""
    from edgc.tools.dry.stand_in import StandIn

    stand_in = StandIn(cluster, MODEL, int(os.environ.get("RANK", "0")))
    stand_in.install()
    stand_in.begin(folder, {rank: rank for rank in range(cluster.processes)})


def train(unused):
    from pathlib import Path

    from edgc.core.base import files
    from edgc.suite.config import RunSpec

    run_dir = Path(sys.argv[1])
    spec = RunSpec.model_validate(files.read_json(run_dir / "spec.json"))
    become_a_rank(spec.cluster, run_dir / "mail")
    from edgc.suite.backends.megatron import hf_export

    def export(*arguments):
        folder = arguments[-1]  # what is exported are weights, of which there are none
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            files.write_text(folder / name, "{}")

    hf_export.export = export


def bench(ops):
    import tempfile
    from pathlib import Path

    from edgc.suite.config import Cluster, load

    become_a_rank(load(Cluster, "gpu1"), Path(tempfile.mkdtemp()))
    # What is timed beside ours, in torch: how large its tensors are depends on data.
    from edgc.core.ops.moments import reference

    def gate(shape_set, op, rank, make, fail):
        small = make(sorted(set(shape_set.shapes)))
        for name in small.work:
            small.error(name)  # of nothing
        return set(small.work)

    ops._gate = gate
    reference.moments = lambda tensors, strides: reference.Moments(*tensors[0].new_empty(5, len(tensors)).double())
    reference.histogram = lambda tensors, strides, of, bins=1000: tensors[0].new_empty(len(tensors), bins).double()


class Hook(MetaPathFinder):
    """Does something before a module is loaded, or after."""

    def __init__(self, module, before=None, after=None):
        self.module, self.before, self.after = module, before, after

    def find_spec(self, name, path, target=None):
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        if self.before:
            self.before(None)
        spec = importlib.util.find_spec(name)
        if self.after:
            plain = spec.loader.exec_module

            def exec_module(module):
                plain(module)
                self.after(module)

            spec.loader.exec_module = exec_module
        return spec


words = " ".join(sys.orig_argv)
if "edgc.suite.training.worker" in words:
    sys.meta_path.insert(0, Hook("edgc.suite.training.loop", before=train))
elif "bench ops" in words:
    sys.meta_path.insert(0, Hook("edgc.suite.training.bench.ops", after=bench))
else:
    sys.meta_path.insert(0, Hook("torch", after=believe))
