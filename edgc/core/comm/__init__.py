"""Collectives of a group of ranks, over torch.distributed or among threads; every byte and second is charged here."""

from edgc.core.comm.communicator import GRADIENT, Communicator, ReduceOp, Work, reduced, wire_factor
from edgc.core.comm.layout import Layout, Piece, Replicated, Sharded, cut_evenly, cut_rows
from edgc.core.comm.torch_group import TorchCommunicator
