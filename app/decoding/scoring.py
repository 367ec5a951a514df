"""What a hypothesis is worth, and whether the model's scores are numbers at all."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import DecodingOptions, LengthPenalty


def length_penalty(length: int, alpha: float, formula: LengthPenalty) -> float:
    """((5 + length) / 6)^alpha (Wu et al. 2016, equation 14), or length^alpha; 1 where alpha is 0.

    length: tokens that were summed, the end token counted; at least 1.
    """
    base = (5.0 + length) / 6.0 if formula is LengthPenalty.WU else float(length)
    return float(base**alpha)


def score(
    log_probability: float, num_tokens: int, options: DecodingOptions, *, coverage: float = 0.0
) -> float:
    """What a hypothesis is worth that has ended.

    log_probability: the sum over its num_tokens tokens, the end token counted where that is how it ended. coverage: sum
    over the source of log(min(attention, 1)), equation (14)'s cp without its weight; at most 0.
    """
    worth = log_probability / length_penalty(max(num_tokens, 1), options.alpha, options.length_penalty)
    return worth + options.coverage_penalty * coverage if options.coverage_penalty else worth


def best_reachable(log_probability: float, options: DecodingOptions) -> float:
    """No continuation of a live hypothesis with this sum scores better: no token adds to it, and none is covered twice.

    Both formulas grow with the length, so that the longest hypothesis, end token counted, divides a negative sum by
    most.
    """
    longest = options.max_target_length + 1
    return log_probability / length_penalty(longest, options.alpha, options.length_penalty)


def rows_without_scores(log_probabilities: NDArray[np.float32]) -> frozenset[int]:
    """Rows of (rows, candidates) whose scores are not numbers: a NaN anywhere, or a best one that is infinite.

    A subword of probability 0 (negative infinity) further down is a score like any other.
    """
    if math.isfinite(np.add.reduce(log_probabilities, axis=None)):
        return frozenset()
    is_broken = np.isnan(log_probabilities).any(axis=1) | ~np.isfinite(log_probabilities[:, 0])
    return frozenset(np.flatnonzero(is_broken).tolist())


def rows_without_best_scores(log_probabilities: NDArray[np.float32]) -> frozenset[int]:
    """Rows of (steps, rows), the best candidates' of several steps, with one that is not a number or infinite."""
    if math.isfinite(np.add.reduce(log_probabilities, axis=None)):
        return frozenset()
    return frozenset(np.flatnonzero(~np.isfinite(log_probabilities).all(axis=0)).tolist())
