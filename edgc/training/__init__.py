"""Training one run: the loop, its records, and how its processes are launched."""
