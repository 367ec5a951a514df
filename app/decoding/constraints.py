"""The constraints of `DecodingOptions`: subwords that are forbidden or penalised after a prefix.

`constrained` sets the scores of forbidden subwords to negative infinity, and multiplies those of penalised ones. The
distribution is not renormalised, so every other subword keeps the model's score.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import DecodingOptions

Prefix = tuple[int, ...]


def is_constrained(options: DecodingOptions, length: int) -> bool:
    """Whether the options may forbid or penalise subwords after `length` subwords.

    The end token is always forbidden before the first subword. That does not count here.
    """
    return bool(
        options.suppress_sequences
        or options.no_repeat_ngram_size
        or options.repetition_penalty != 1.0
        or length < options.min_target_length
    )


def suppressed_ends(prefix: Prefix, runs: Sequence[Prefix]) -> list[int]:
    """Subwords that would complete one of the suppressed runs."""
    return [run[-1] for run in runs if prefix[len(prefix) - len(run) + 1 :] == run[:-1]]


def repeated_ngram_ends(prefix: Prefix, ngram_size: int) -> list[int]:
    """Subwords that would complete an n-gram that is already in the prefix; none if ngram_size is 0."""
    context_size = ngram_size - 1
    if context_size < 0 or len(prefix) < ngram_size:
        return []
    context = prefix[len(prefix) - context_size :]
    return [
        prefix[end] for end in range(context_size, len(prefix)) if prefix[end - context_size : end] == context
    ]


def forbidden(prefix: Prefix, options: DecodingOptions, eos_id: int) -> list[int]:
    """Subwords that may not follow the prefix, unordered, with possible duplicates."""
    ends = [eos_id] if len(prefix) < max(1, options.min_target_length) else []
    ends += suppressed_ends(prefix, options.suppress_sequences)
    ends += repeated_ngram_ends(prefix, options.no_repeat_ngram_size)
    return ends


def constrained(
    log_probabilities: NDArray[np.float32],
    prefixes: Sequence[Prefix],
    options: DecodingOptions,
    *,
    eos_id: int,
) -> NDArray[np.float32]:
    """Scores (live, vocab_size) with penalties applied, and with negative infinity for forbidden subwords.

    log_probabilities: (live, vocab_size), those of the model after each prefix. They are not modified.
    """
    scores = log_probabilities.copy()
    for row, prefix in enumerate(prefixes):
        if options.repetition_penalty != 1.0 and prefix:
            repeated = list(set(prefix))
            scores[row, repeated] *= np.float32(options.repetition_penalty)
        scores[row, forbidden(prefix, options, eos_id)] = -np.inf
    return scores


def best_candidates(
    scores: NDArray[np.float32], num_candidates: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and ids of each row's best subwords, in descending order of scores. Equal scores are in order of ids.

    scores: (rows, vocab_size), without NaN. Each result has min(num_candidates, vocab_size) columns.
    """
    num_rows, vocab_size = scores.shape
    k = min(num_candidates, vocab_size)
    if k == 1:
        best = scores.argmax(axis=1)[:, None]
        return np.take_along_axis(scores, best, axis=1), best
    ids = np.empty((num_rows, k), np.int64)
    least = np.partition(scores, vocab_size - k, axis=1)[:, vocab_size - k]  # (rows,), the k-th best
    for row in range(num_rows):
        reaching = np.flatnonzero(scores[row] >= least[row])  # k ids, and more if scores are equal
        ids[row] = reaching[np.argsort(-scores[row, reaching], kind="stable")[:k]]
    return np.take_along_axis(scores, ids, axis=1), ids
