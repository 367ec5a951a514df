"""Greedy search: the most probable subword at each step. Equal to a beam of one, and leaner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import DecodingOptions, FinishReason, Hypothesis
from app.decoding.scoring import finished

ONLY_PARENT = [0]


class GreedySearch:
    """One sentence's greedy search; see app.decoding.search for what its members mean."""

    num_candidates = 1
    parents = ONLY_PARENT

    def __init__(self, options: DecodingOptions, *, bos_id: int, eos_id: int) -> None:
        self.options = options
        self.eos_id = eos_id
        self.bos_id = bos_id
        self.last_ids = [bos_id]
        self.is_done = False
        self._ids: list[int] = []
        self._total = 0.0
        self._reason = FinishReason.STOP

    def fresh(self) -> GreedySearch:
        """The same search, not begun."""
        return GreedySearch(self.options, bos_id=self.bos_id, eos_id=self.eos_id)

    def hypotheses(self) -> list[Hypothesis]:
        """The one answer; empty until it is done."""
        if not self.is_done:
            return []
        return [finished(tuple(self._ids), self._total, reason=self._reason, options=self.options)]

    def take(self, token: int, log_probability: float) -> None:
        """Follow the best candidate. At max_target_length only an end token still counts."""
        if token == self.eos_id:
            self._total += log_probability
            self.is_done = True
        elif len(self._ids) == self.options.max_target_length:
            self._reason = FinishReason.LENGTH
            self.is_done = True
        else:
            self._ids.append(token)
            self._total += log_probability
            self.last_ids = [token]


def advance_greedy(
    searches: Sequence[GreedySearch],
    rows: Sequence[list[int]],
    *,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """One step of many greedy searches. rows: of each search, its one row. The arrays: (num_rows, num_candidates)."""
    tokens = ids[:, 0].tolist()
    scores = log_probabilities[:, 0].tolist()
    for search, (row,) in zip(searches, rows, strict=True):
        search.take(tokens[row], scores[row])
