"""Numeric kernels, a folder each: `reference.py` in torch is the oracle and the CPU path."""
