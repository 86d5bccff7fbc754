"""Megatron-core: the only package here that imports it."""

import torch

# When it is imported megatron hands its fused functions to torch.compile, which loads the whole compiler: a quarter of
# the time that a process needs to start. No model here asks for fusion (model.py), so none of them is ever called.
_compile, torch.compile = torch.compile, lambda function: function  # type: ignore[assignment]
try:
    import megatron.core
finally:
    torch.compile = _compile

__all__ = ["megatron"]
