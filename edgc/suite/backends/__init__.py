"""Training frameworks that carry the exchange."""
