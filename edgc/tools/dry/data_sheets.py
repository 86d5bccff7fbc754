"""Devices as NVIDIA's papers have them: what they hold, and the rates that nothing on them exceeds.

Rates: the data sheets of V100 SXM2, A100 SXM4 80 GB and H100 SXM5, without sparsity. Multiprocessors,
clocks and shared memory: the architectures' white papers. Registers, threads and blocks of a multiprocessor: CUDA C++
Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class DeviceModel:
    """A device.

    l2_bytes_clock: what its L2 hands out in a clock, by the A100 white paper; of H100 assumed to be as of A100, as the
    H100 white paper does not say. clock_ghz: the highest that is named. tf32_tflops: None: it has no such products.
    """

    name: str
    capability: tuple[int, int]
    memory_gbyte: float
    multiprocessors: int
    memory_gbyte_s: float
    clock_ghz: float
    l2_bytes_clock: int
    fp32_tflops: float
    tf32_tflops: float | None
    shared_bytes: int  #: of a multiprocessor, for all its blocks
    reserved_bytes: int  #: of these, for the system, a block


MODELS = {
    "V100": DeviceModel("V100", (7, 0), 32, 80, 900, 1.53, 2048, 15.7, None, 96 * KIB, 0),
    "A100": DeviceModel("A100", (8, 0), 80, 108, 2039, 1.41, 5120, 19.5, 156, 164 * KIB, KIB),
    "H100": DeviceModel("H100", (9, 0), 80, 132, 3350, 1.98, 5120, 66.9, 494.7, 228 * KIB, KIB),
}

PORT_BYTES_CLOCK = 64  #: what a multiprocessor gets from the L2 in a clock: assumed, no paper of NVIDIA's has it
REGISTERS, WARPS, BLOCKS = 65536, 64, 32  #: of a multiprocessor, on all three
#: A warp gets its registers in units of 256, from one of four parts of the multiprocessor.
UNIT, QUARTERS, LANES = 256, 4, 32


def blocks_of_multiprocessor(model: DeviceModel, registers: int, shared: int, warps: int) -> int:
    """How many blocks a multiprocessor holds at once: as the CUDA occupancy calculator counts them.

    registers: of a thread. shared: bytes of a block. warps: of a block.
    """
    of_warp = -(-registers * LANES // UNIT) * UNIT
    by_registers = REGISTERS // QUARTERS // of_warp * QUARTERS // warps
    needed = shared + model.reserved_bytes
    by_shared = model.shared_bytes // needed if needed else BLOCKS
    return min(by_registers, by_shared, WARPS // warps, BLOCKS)
