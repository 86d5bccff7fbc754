"""Open benchmark and replication suite for compressed gradient exchange in language-model training."""

from edgc.core.base.errors import UserError

__version__ = "0.4.0"

__all__ = ["UserError", "__version__"]
