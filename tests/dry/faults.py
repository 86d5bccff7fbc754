"""Faults that only a GPU would show. Each changes one line of the product; a dry run has to find it, and say where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`old` becomes `new`, once, in `file` below edgc/.

    A run of `method` shows it, on `ranks` of four (two stages × two data-parallel ranks), with `resumes` when it goes
    on from a checkpoint. `shows`: the file in which it shows, if it is not the one with the fault.
    """

    kind: str
    file: str
    old: str
    new: str
    method: str
    resumes: bool = False
    ranks: tuple[int, ...] = (0, 2)  # of both stages
    shows: str = ""


ALL = (0, 1, 2, 3)
TELEMETRY, OBSERVATION, LOWRANK = "core/comm/telemetry.py", "core/exchange/observation.py", "core/ops/lowrank/triton.py"
PRODUCTS = "core/ops/lowrank/reference.py"
ENGINE, PROCESS = "suite/backends/megatron/engine.py", "suite/backends/megatron/process.py"
OUTER, SYNCHRONISATION = "core/synchronisation/outer.py", "core/synchronisation/synchronisation.py"
OPTIMIZER = "suite/backends/megatron/optimizer.py"
TOPK, LAUNCH, WIRE = "core/aggregators/topk.py", "core/ops/kernel_launch.py", "core/aggregators/dense.py"

HOST = "a tensor is left on the host"
LAYOUT = "memory is not contiguous"
EVENT = "an event cannot be read"
TYPE = "NCCL has no such type or reduction"
SIZE = "sizes do not fit"
WAIT = "the host waits where it need not"
COMPILE = "a kernel is compiled inside a step"
CONNECT = "a group connects inside a step, or for nothing"
ORDER = "ranks do not call alike"
ADDRESS = "a kernel is told of memory that is not there"

FAULTS = (
    Fault(HOST, "core/aggregators/draws.py", ".to(like.device)", "", "powersgd", shows=PRODUCTS),
    Fault(HOST, SYNCHRONISATION, "torch.float64, device=device", "torch.float64", "diloco"),
    Fault(HOST, "suite/training/recorder.py", "dtype=torch.float64, device=self._device", "dtype=torch.float64",
          "dense"),
    Fault(HOST, "core/exchange/relative_error.py", "gaussian.to(residual.device)", "gaussian", "edgc"),
    Fault(HOST, ENGINE, ".to(self.place.device, non_blocking=True)", "", "dense"),
    Fault(HOST, "core/base/resumable.py", "tensor.to(device)", "tensor", "diloco", resumes=True, shows=SYNCHRONISATION),
    Fault(HOST, "core/aggregators/right_factors.py", "self[name].to(like)", "self[name]", "powersgd",
          resumes=True, shows=PRODUCTS),
    Fault(HOST, "core/aggregators/residuals.py", "found.to(gradient.tensor.device)  #", "found  #", "topk",
          resumes=True, shows="core/ops/select/triton.py"),
    Fault(LAYOUT, TOPK, "new_empty(comm.size, wire.numel())", "new_empty(wire.numel(), comm.size).t()", "topk"),
    Fault(LAYOUT, "suite/backends/megatron/ddp.py", "embedding.all_reduce(gradient,",
          "embedding.all_reduce(gradient.t(),",
          "dense"),
    Fault(EVENT, TELEMETRY, "torch.cuda.Event(enable_timing=True)", "torch.cuda.Event()", "dense"),
    Fault(EVENT, TELEMETRY, "event.record()", "event.query()", "dense"),
    Fault(EVENT, TELEMETRY, "            torch.cuda.synchronize()", "            torch.cuda.current_stream()", "dense"),
    Fault(TYPE, "core/comm/torch_group.py", "return dist.ReduceOp.MAX if", "return dist.ReduceOp.BOR if", "diloco",
          shows=SYNCHRONISATION),
    Fault(TYPE, SYNCHRONISATION, "values, dtype=torch.float64", "[0], dtype=torch.int16", "diloco"),
    Fault(TYPE, WIRE, "    sent = buffer.to(torch.bfloat16)", "    sent = buffer.to(torch.bool)", "dense_bf16"),
    Fault(SIZE, TOPK, "new_empty(comm.size, wire.numel())", "new_empty(1 + comm.size, wire.numel())", "topk"),
    Fault(SIZE, "suite/training/recorder.py", "torch.empty(dist.get_world_size(),", "torch.empty(1,", "dense"),
    Fault(SIZE, OBSERVATION, "own.new_empty(self._stages.size, len(numbers))", "own.new_empty(len(numbers))", "edgc"),
    Fault(WAIT, "core/aggregators/lowrank.py", "        starts = weighted(self.starts(",
          "        grads[0].sum().item()\n        starts = weighted(self.starts(", "powersgd"),
    Fault(WAIT, "core/aggregators/residuals.py", "        if found is None:",
          "        if found is None or found.isnan().any():", "topk"),
    Fault(WAIT, ENGINE, "self.optimizer.prepare_grads()", "torch.cuda.synchronize(self.optimizer.prepare_grads())",
          "dense"),
    Fault(WAIT, PROCESS, "    gradient_norm.install()\n", "", "dense", shows=OPTIMIZER),
    Fault(COMPILE, ENGINE, "            self._rehearse()\n", "            pass\n", "powersgd", shows=LOWRANK),
    Fault(COMPILE, "core/exchange/rehearsal.py", ".bit_length()), rank % 4 == 0", ".bit_length()), True", "edgc",
          shows=LOWRANK),
    Fault(COMPILE, LOWRANK, "BLOCKS=rank // width,", "BLOCKS=rank // width + factors[0].shape[1] % 7,", "edgc"),
    Fault(CONNECT, PROCESS, ", device_id=device)", ")", "dense", shows="suite/backends/megatron/pipeline.py"),
    Fault(CONNECT, PROCESS, "create_gloo_process_groups=False", "create_gloo_process_groups=True", "dense"),
    Fault(ORDER, OBSERVATION, "self._agreement.broadcast(", "self._agreement.rank or self._agreement.broadcast(",
          "edgc", ranks=ALL),
    Fault(ORDER, WIRE, "    buffer.mul_(1 / comm.size)  #", "    buffer = buffer[comm.rank :].mul_(1 / comm.size)  #",
          "dense", ranks=ALL),
    Fault(ORDER, "suite/backends/megatron/pipeline.py", "forward.encode(tensor_send_next)",
          "forward.encode(tensor_send_next).half()", "dense"),
    Fault(ADDRESS, LAUNCH, "return tensor.data_ptr()", "return tensor.clone().data_ptr()", "powersgd",
          shows=LOWRANK),
    Fault(ADDRESS, LAUNCH, "table.pin_memory().to(device, non_blocking=True)", "table.pin_memory()", "powersgd",
          shows="core/ops/orthonormalise/triton.py"),
    Fault(ADDRESS, LOWRANK, "decode_kernel[(sum(counts),)]", "decode_kernel[(0 * sum(counts),)]", "powersgd"),
)  # fmt: skip
