"""The exchange for anybody's FSDP2 training loop; see edgc/hooks/README.md."""

from edgc.hooks.torch_fsdp import FSDPExchange, compress

__all__ = ["FSDPExchange", "compress"]
