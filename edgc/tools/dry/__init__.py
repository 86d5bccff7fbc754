"""Training for GPUs, executed without one: nothing is computed, and everything else happens. The product imports none
of it."""
