"""Benchmarks of the package's own operations (`edgc bench`)."""
