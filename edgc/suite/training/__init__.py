"""A run from text to scores: its corpus, the loop, its records, how its processes are launched; and benchmarks."""
