"""The exchange for anybody's DDP training loop; see edgc/hooks/README.md."""

from edgc.hooks.torch_ddp import DDPExchange, compress

__all__ = ["DDPExchange", "compress"]
