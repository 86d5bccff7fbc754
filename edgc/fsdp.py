"""The exchange for anybody's FSDP2 training loop; see edgc/backends/README.md."""

from edgc.backends.torch_fsdp import FSDPExchange, compress

__all__ = ["FSDPExchange", "compress"]
