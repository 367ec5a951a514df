"""Draws a token by its probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import Sampling


def draw(log_probabilities: NDArray[np.float32], sampling: Sampling, generator: np.random.Generator) -> int:
    """Draw one token with one uniform number from the generator.

    log_probabilities: (vocab_size,), negative infinity for forbidden tokens; at least one is allowed.
    """
    above_best = log_probabilities - log_probabilities.max()
    weights = np.exp(above_best / np.float32(sampling.temperature))  # (vocab_size,), the largest is 1
    if sampling.top_k or sampling.top_p < 1.0:
        ids = candidate_ids(weights, sampling)
        return int(ids[_pick(weights[ids], generator)])
    return _pick(weights, generator)


def candidate_ids(weights: NDArray[np.float32], sampling: Sampling) -> NDArray[np.int64]:
    """The ids to draw from, ascending.

    First the top_k ids with the largest weights are kept. Then, in descending order of weight, only as many of them are
    kept as are needed for their weights to reach top_p of the sum of all top_k weights. Of equal weights the smaller id
    is kept first. weights: (vocab_size,).
    """
    descending = np.sort(weights)[::-1]
    num_kept = sampling.top_k or weights.size
    if sampling.top_p < 1.0:
        sums = np.cumsum(descending[:num_kept], dtype=np.float64)
        num_kept = int(np.searchsorted(sums, sampling.top_p * sums[-1])) + 1
    smallest = descending[num_kept - 1]
    above, equal = np.flatnonzero(weights > smallest), np.flatnonzero(weights == smallest)
    return np.sort(np.concatenate([above, equal[: num_kept - above.size]]))


def _pick(weights: NDArray[np.float32], generator: np.random.Generator) -> int:
    """Draw an index with a probability proportional to its weight."""
    sums = np.cumsum(weights, dtype=np.float64)
    drawn = generator.random() * sums[-1]  # below the sum even if rounded: random() is at most 1 - 2^-53
    return int(np.searchsorted(sums, drawn, side="right"))
