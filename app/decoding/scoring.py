"""What a hypothesis is worth, and whether the model's scores are numbers at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import DecodingOptions, FinishReason, Hypothesis, LengthPenalty


def length_penalty(length: int, alpha: float, formula: LengthPenalty) -> float:
    """((5 + length) / 6)^alpha (Wu et al. 2016, equation 14), or length^alpha; 1 where alpha is 0.

    length: subwords that were summed, the end token counted; at least 1.
    """
    base = (5.0 + length) / 6.0 if formula is LengthPenalty.WU else float(length)
    return float(base**alpha)


def finished(
    ids: tuple[int, ...], log_probability: float, *, reason: FinishReason, options: DecodingOptions
) -> Hypothesis:
    """Score a hypothesis that has ended; the end token was summed where that is how it ended."""
    length = len(ids) + 1 if reason is FinishReason.STOP else len(ids)
    score = log_probability / length_penalty(length, options.alpha, options.length_penalty)
    return Hypothesis(ids, log_probability, score, reason)


def rows_without_scores(log_probabilities: NDArray[np.float32]) -> frozenset[int]:
    """Rows of (rows, candidates) whose scores are not numbers: a NaN anywhere, or a best one that is infinite.

    A subword of probability 0 (negative infinity) further down is a score like any other.
    """
    if np.isfinite(log_probabilities).all():
        return frozenset()
    is_broken = np.isnan(log_probabilities).any(axis=1) | ~np.isfinite(log_probabilities[:, 0])
    return frozenset(np.flatnonzero(is_broken).tolist())
