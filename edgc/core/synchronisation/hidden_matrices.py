"""Which parameters are hidden matrices: Muon and Dion update these, AdamW all others."""

from edgc.core.aggregators.workload import Shape

#: Parts of the names of matrices that are not hidden: the embeddings, and the last stage's copy of the word embedding.
NOT_HIDDEN = ("word_embeddings", "position_embeddings", "output_layer")


def is_hidden(name: str, shape: Shape, others: tuple[str, ...] = NOT_HIDDEN) -> bool:
    """Whether a parameter is a matrix and its name holds none of `others`."""
    return len(shape) == 2 and not any(part in name for part in others)
