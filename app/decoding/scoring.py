"""Scores of hypotheses, and checks of the model's scores for NaN and infinity."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import DecodingOptions, LengthPenalty


def length_penalty(length: int, alpha: float, formula: LengthPenalty) -> float:
    """((5 + length) / 6)^alpha (Wu et al. 2016, equation 14), or length^alpha; 1 if alpha is 0.

    length: tokens of the hypothesis, including the end token; at least 1.
    """
    base = (5.0 + length) / 6.0 if formula is LengthPenalty.WU else float(length)
    return float(base**alpha)


def score(
    log_probability: float, num_tokens: int, options: DecodingOptions, *, coverage: float = 0.0
) -> float:
    """The score of a complete hypothesis: log-probability / length penalty + coverage penalty * coverage.

    log_probability: sum over its num_tokens tokens, including the end token if there is one. The length penalty counts
        one token more if the options have a start_id.
    coverage: sum over the source of log(min(attention, 1)), the cp of equation (14) without its weight; at most 0.
    """
    length = max(num_tokens, 1) + (options.start_id is not None)
    value = log_probability / length_penalty(length, options.alpha, options.length_penalty)
    return value + options.coverage_penalty * coverage if options.coverage_penalty else value


def best_reachable(log_probability: float, options: DecodingOptions) -> float:
    """The best score that a continuation of a live hypothesis with this log-probability can have.

    Further tokens have log-probabilities of at most 0, and the coverage term is at most 0. Both length penalties grow
    with the length. So a negative sum divided by its length penalty is largest at the maximum length, which is
    max_target_length and the end token.
    """
    longest = options.max_target_length + 1 + (options.start_id is not None)
    return log_probability / length_penalty(longest, options.alpha, options.length_penalty)


def rows_without_scores(log_probabilities: NDArray[np.float32]) -> frozenset[int]:
    """Rows with a NaN or with an infinite best score. log_probabilities: (rows, candidates), descending.

    Negative infinity after the best candidate is valid, because a subword may have probability 0.
    """
    if math.isfinite(np.add.reduce(log_probabilities, axis=None)):
        return frozenset()
    is_broken = np.isnan(log_probabilities).any(axis=1) | ~np.isfinite(log_probabilities[:, 0])
    return frozenset(np.flatnonzero(is_broken).tolist())


def rows_without_best_scores(log_probabilities: NDArray[np.float32]) -> frozenset[int]:
    """Rows with a NaN or infinite best score in any step. log_probabilities: (steps, rows), the best scores."""
    if math.isfinite(np.add.reduce(log_probabilities, axis=None)):
        return frozenset()
    return frozenset(np.flatnonzero(~np.isfinite(log_probabilities).all(axis=0)).tolist())
