"""What ranks exchange, and when, relative to the optimizer: one file per synchronisation."""
