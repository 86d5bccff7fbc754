"""What crosses the network: the exchange and its parts. Needs torch, numpy, pydantic and pyyaml."""
