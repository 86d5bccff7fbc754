"""Laws of the data order, for any size, seed, batch and number of ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgc.suite.training.data.corpus_files import Document, held_out
from edgc.suite.training.data.dataset import rank_batches, training_batch

SIZES = st.integers(1, 200)
SEEDS = st.integers(0, 2**32)


def order(size: int, seed: int, global_batch: int, start: int, stop: int) -> np.ndarray:
    return np.concatenate([training_batch(size, seed, step, global_batch) for step in range(start, stop)])


@given(size=SIZES, seed=SEEDS, global_batch=st.integers(1, 64))
def test_every_epoch_is_a_permutation(size: int, seed: int, global_batch: int) -> None:
    epochs = 3
    steps = -(-epochs * size // global_batch)
    seen = order(size, seed, global_batch, 0, steps)[: epochs * size]
    assert np.array_equal(np.sort(seen.reshape(epochs, size)), np.tile(np.arange(size), (epochs, 1)))


@given(size=st.integers(50, 200), seed=SEEDS)
def test_epochs_and_seeds_differ(size: int, seed: int) -> None:
    first, second = order(size, seed, size, 0, 2).reshape(2, size)
    other = order(size, seed + 1, size, 0, 1)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)


@given(size=SIZES, seed=SEEDS, global_batch=st.integers(1, 32), stop=st.integers(0, 20))
def test_resumed_equals_uninterrupted(size: int, seed: int, global_batch: int, stop: int) -> None:
    whole = order(size, seed, global_batch, 0, stop + 3)
    resumed = order(size, seed, global_batch, stop, stop + 3)
    assert np.array_equal(resumed, whole[stop * global_batch :])


@given(
    size=SIZES,
    seed=SEEDS,
    step=st.integers(0, 50),
    micro=st.integers(1, 4),
    ranks=st.sampled_from([1, 2, 4, 8]),
)
def test_a_global_batch_does_not_depend_on_the_ranks(size: int, seed: int, step: int, micro: int, ranks: int) -> None:
    whole = training_batch(size, seed, step, 8 * micro)
    parts = [rank_batches(whole, rank, ranks, micro) for rank in range(ranks)]
    assert all(part.shape == (8 // ranks, micro) for part in parts)
    assert np.array_equal(np.concatenate(parts).ravel(), whole)


def test_the_order_is_the_same_on_every_machine_and_numpy() -> None:
    # PCG64 and SeedSequence are fixed for good by numpy's compatibility policy; so is this order
    assert training_batch(8, seed=1, step=0, global_batch=8).tolist() == [2, 4, 7, 5, 0, 6, 3, 1]


@given(text=st.text(), fraction=st.floats(0.01, 0.99))
def test_held_out_depends_on_the_text_alone(text: str, fraction: float) -> None:
    assert held_out(Document("a", text), fraction) == held_out(Document("b", text), fraction)
    assert held_out(Document("a", text), fraction) <= held_out(Document("a", text), min(1.0, fraction + 0.1))


@settings(max_examples=5)
@given(prefix=st.text(max_size=5), fraction=st.floats(0.05, 0.5))
def test_the_held_out_share_is_the_fraction(prefix: str, fraction: float) -> None:
    n = 4000
    share = sum(held_out(Document("", f"{prefix}{i}"), fraction) for i in range(n)) / n
    assert abs(share - fraction) < 5 * (fraction * (1 - fraction) / n) ** 0.5
