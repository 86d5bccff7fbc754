"""The exchange in anybody's training loop: DDP and FSDP2."""
