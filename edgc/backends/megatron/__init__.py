"""Megatron-core: the only package here that imports it."""
