"""Tools beside the benchmark. Only their commands import them."""
