"""What may not follow: the constraints of `DecodingOptions`, as subwords forbidden after a prefix.

A constraint looks at one hypothesis and names subwords; `constrained` strikes them from the distribution. Nothing
is spread over what remains: a subword that is allowed is worth what the model says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import DecodingOptions

Prefix = tuple[int, ...]


def is_constrained(options: DecodingOptions, length: int) -> bool:
    """Whether anything may be forbidden or penalised after `length` subwords."""
    return bool(
        options.suppress_sequences
        or options.no_repeat_ngram_size
        or options.repetition_penalty != 1.0
        or length < options.min_target_length
    )


def suppressed_ends(prefix: Prefix, runs: Sequence[Prefix]) -> list[int]:
    """Subwords that would complete one of the runs."""
    return [run[-1] for run in runs if prefix[len(prefix) - len(run) + 1 :] == run[:-1]]


def repeated_ngram_ends(prefix: Prefix, ngram_size: int) -> list[int]:
    """Subwords that would complete an n-gram that the prefix holds already; none where ngram_size is 0."""
    context_size = ngram_size - 1
    if context_size < 0 or len(prefix) < ngram_size:
        return []
    context = prefix[len(prefix) - context_size :]
    return [
        prefix[end] for end in range(context_size, len(prefix)) if prefix[end - context_size : end] == context
    ]


def forbidden(prefix: Prefix, options: DecodingOptions, eos_id: int) -> list[int]:
    """Subwords that may not follow the prefix, in no order; some may be named twice."""
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
    """What the search may choose from: (live, vocab_size), negative infinity where it may not.

    log_probabilities: (live, vocab_size), the model's own after each of the prefixes; left as they are.
    """
    scores = log_probabilities.copy()
    for row, prefix in enumerate(prefixes):
        if options.repetition_penalty != 1.0 and prefix:
            said = list(set(prefix))
            scores[row, said] *= np.float32(options.repetition_penalty)
        scores[row, forbidden(prefix, options, eos_id)] = -np.inf
    return scores


def best_candidates(
    scores: NDArray[np.float32], num_candidates: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The best of each row, descending, of equal ones the smaller id first: each (rows, num_candidates).

    scores: (rows, vocab_size), without NaN. Fewer columns where the vocabulary has fewer.
    """
    num_rows, vocab_size = scores.shape
    k = min(num_candidates, vocab_size)
    if k == 1:
        best = scores.argmax(axis=1)[:, None]
        return np.take_along_axis(scores, best, axis=1), best
    ids = np.empty((num_rows, k), np.int64)
    least = np.partition(scores, vocab_size - k, axis=1)[:, vocab_size - k]  # (rows,), the k-th best
    for row in range(num_rows):
        reaching = np.flatnonzero(scores[row] >= least[row])  # k ids, and more where some are equal
        ids[row] = reaching[np.argsort(-scores[row, reaching], kind="stable")[:k]]
    return np.take_along_axis(scores, ids, axis=1), ids
