"""Methods that exchange in other ways than a hook can, in anybody's training loop; see edgc/hooks/README.md."""

from edgc.hooks.torch_optimizer import LocalSteps, wrap

__all__ = ["LocalSteps", "wrap"]
