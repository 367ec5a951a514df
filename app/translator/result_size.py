"""Estimates the memory of an engine result, for the size limit of the cache."""

from __future__ import annotations

from app.decoding.options import Hypothesis
from app.engine.sequence import SequenceResult

# Bytes in 64-bit CPython, measured. Objects include the garbage collector's header. Sizes are multiples of 16.
NUMBER_BYTES = 32 + 8  # an int or a float, and the reference to it
TUPLE_BYTES = 64 + 8
RESULT_BYTES = 240
HYPOTHESIS_BYTES = 240


def size_of(result: SequenceResult) -> int:
    """Return the bytes of a result and all its objects. The estimate is at most a fifth below the real size."""
    return RESULT_BYTES + sum(_size_of_hypothesis(hypothesis) for hypothesis in result.hypotheses)


def _size_of_hypothesis(hypothesis: Hypothesis) -> int:
    num_numbers = len(hypothesis.ids) + len(hypothesis.token_log_probabilities)
    num_tuples = 3
    for alternatives in hypothesis.alternatives:
        num_tuples += 1 + len(alternatives)
        # Two numbers for each alternative, and half a number's bytes for the two references in its tuple.
        num_numbers += 2 * len(alternatives) + len(alternatives) // 2
    for weights in hypothesis.alignment:
        num_tuples += 1
        num_numbers += len(weights)
    return HYPOTHESIS_BYTES + NUMBER_BYTES * num_numbers + TUPLE_BYTES * num_tuples
