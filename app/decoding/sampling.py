"""Drawing a subword by its probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import Sampling


def draw(log_probabilities: NDArray[np.float32], sampling: Sampling, generator: np.random.Generator) -> int:
    """One subword, of one uniform number from the generator, whatever is cut.

    log_probabilities: (vocab_size,), negative infinity where a subword may not be drawn; at least one may.
    """
    above_best = log_probabilities - log_probabilities.max()
    weights = np.exp(above_best / np.float32(sampling.temperature))  # (vocab_size,), the best one's is 1
    if sampling.top_k or sampling.top_p < 1.0:
        weights = cut(weights, sampling)
    reached = np.cumsum(weights, dtype=np.float64)
    aim = generator.random() * reached[-1]  # below the sum even when rounded: random() is at most 1 - 2^-53
    return int(np.searchsorted(reached, aim, side="right"))


def cut(weights: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float32]:
    """The weights (vocab_size,) with 0 for what is not drawn: all but, of the top_k, the fewest that reach top_p.

    Of equal weights the smaller id is kept first.
    """
    descending = np.sort(weights)[::-1]
    num_kept = sampling.top_k or weights.size
    if sampling.top_p < 1.0:
        reached = np.cumsum(descending[:num_kept], dtype=np.float64)
        num_kept = int(np.searchsorted(reached, sampling.top_p * reached[-1])) + 1
    least = descending[num_kept - 1]
    kept = weights > least
    kept[np.flatnonzero(weights == least)[: num_kept - np.count_nonzero(kept)]] = True
    return np.where(kept, weights, np.float32(0.0))
