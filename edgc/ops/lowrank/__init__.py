"""The three matrix products of a PowerSGD step."""

from edgc.ops.lowrank.reference import decode, encode, project

__all__ = ["decode", "encode", "project"]
