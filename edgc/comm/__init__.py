"""Collectives of a group of ranks, over torch.distributed or among threads; every byte and second is charged here."""

from edgc.comm.communicator import (
    GRADIENT,
    ChargedCommunicator,
    Communicator,
    ReduceOp,
    TorchCommunicator,
    Work,
    wire_factor,
)

__all__ = ["GRADIENT", "ChargedCommunicator", "Communicator", "ReduceOp", "TorchCommunicator", "Work", "wire_factor"]
