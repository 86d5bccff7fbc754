"""Open benchmark and replication suite for compressed gradient exchange in language-model training."""

__version__ = "0.1.0"
