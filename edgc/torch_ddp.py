"""The exchange for anybody's DDP training loop; see edgc/backends/README.md."""

from edgc.backends.torch_ddp import DDPExchange, compress

__all__ = ["DDPExchange", "compress"]
