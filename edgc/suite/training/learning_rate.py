"""The learning rate: linear warm-up, then a cosine to its floor."""

from __future__ import annotations

import math

from edgc.suite.config import Training


def learning_rate(step: int, t: Training) -> float:
    """Learning rate of 0-based optimizer `step`.

    The warm-up is part of the decay's steps; it reaches `lr` with its last step. Past the decay the rate stays
    at `min_lr`.
    """
    decay = t.decay_iterations or t.iterations
    warmup = round(t.warmup_fraction * decay)
    if step < warmup:
        return t.lr * (step + 1) / warmup
    if step >= decay:
        return t.min_lr
    progress = (step - warmup) / (decay - warmup)
    return t.min_lr + 0.5 * (math.cos(math.pi * progress) + 1.0) * (t.lr - t.min_lr)
