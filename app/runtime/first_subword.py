"""Removes the end token from the candidates of a row's first step, so that no translation is empty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.runtime.interface import Floats, Int64s, Limits, StepInput


def first_steps(step: StepInput, limits: Limits) -> NDArray[np.bool_]:
    """Whether each row is in its first step, (num_rows,)."""
    is_first: NDArray[np.bool_] = step.positions == 0
    # With a prefill_id, the start token varies by sentence. A free row has position 0 too, so it may count as well:
    # that does no harm, because its results are not read.
    if limits.prefill_id is None:
        is_first &= step.ids == limits.bos_id
    return is_first


def num_to_rank(step: StepInput, limits: Limits) -> int:
    """How many candidates to request from a graph so that num_candidates remain without the end token."""
    more = bool(first_steps(step, limits).any())
    return min(step.num_candidates + more, limits.vocab_size)


def without_first_end(
    log_probabilities: Floats, ids: Int64s, step: StepInput, limits: Limits
) -> tuple[Floats, Int64s]:
    """The best candidates of each row, without the end token in its first step: (num_rows, num_candidates) each.

    log_probabilities, ids: (num_rows, at least num_to_rank), in the graph's order. If the vocabulary has too few other
    subwords, the end token is last, with negative infinity.
    """
    k = step.num_candidates
    is_end = (ids == limits.eos_id) & first_steps(step, limits)[:, None]
    if is_end.any():
        order: NDArray[np.int64] = is_end.argsort(axis=1, kind="stable")
        log_probabilities = np.where(is_end, np.float32(-np.inf), log_probabilities)
        log_probabilities = np.take_along_axis(log_probabilities, order, axis=1)
        ids = np.take_along_axis(ids, order, axis=1)
    return log_probabilities[:, :k], ids[:, :k]
