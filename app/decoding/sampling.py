"""Drawing a subword by its probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.decoding.constraints import best_candidates
from app.decoding.options import Sampling


def draw(log_probabilities: NDArray[np.float32], sampling: Sampling, generator: np.random.Generator) -> int:
    """One subword, of one uniform number from the generator, whatever is cut.

    log_probabilities: (vocab_size,), negative infinity where a subword may not be drawn; at least one may.
    """
    k = sampling.top_k or log_probabilities.size
    if k < log_probabilities.size or sampling.top_p < 1.0:
        best, ids = best_candidates(log_probabilities[None, :], k)
        scores, tokens = best[0], ids[0]
    else:
        scores, tokens = log_probabilities, np.arange(log_probabilities.size)
    scaled = scores.astype(np.float64) / sampling.temperature
    reached = np.cumsum(np.exp(scaled - scaled.max()))  # of the best k, unnormalised
    num_kept = reached.size
    if sampling.top_p < 1.0:
        num_kept = int(np.searchsorted(reached, sampling.top_p * reached[-1])) + 1
    aim = generator.random() * reached[num_kept - 1]
    return int(tokens[min(int(np.searchsorted(reached, aim, side="right")), num_kept - 1)])
