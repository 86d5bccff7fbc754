"""What `edgc status` shows."""
