"""Greedy search: the most probable subword at each step. Equal to a beam of one, and leaner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.loop_guard import is_looping, next_check
from app.decoding.notes import Notes
from app.decoding.options import DecodingOptions, FinishReason, Hypothesis
from app.decoding.scoring import score

ONLY_PARENT = [0]


class GreedySearch:
    """One sentence's greedy search; see app.decoding.search for what its members mean."""

    num_candidates = 1
    wants_distributions = False
    wants_alignment = False
    parents = ONLY_PARENT

    def __init__(
        self, options: DecodingOptions, *, bos_id: int, eos_id: int, source_ids: Sequence[int] = ()
    ) -> None:
        self.options = options
        self.eos_id = eos_id
        self.bos_id = bos_id
        self.source_ids = source_ids
        self.notes: Notes | None = None
        self.last_ids = [bos_id]
        self.is_done = False
        self.has_looped = False
        self._ids: list[int] = []
        self._scores: list[float] = []
        self._reason = FinishReason.STOP
        self._next_check = next_check(0, options)
        self._max_length = options.max_target_length

    def fresh(self) -> GreedySearch:
        """The same search, not begun."""
        return GreedySearch(self.options, bos_id=self.bos_id, eos_id=self.eos_id, source_ids=self.source_ids)

    def prefixes(self) -> list[tuple[int, ...]]:
        """What its one live hypothesis has said."""
        return [tuple(self._ids)]

    def hypotheses(self) -> list[Hypothesis]:
        """The one answer; empty until it is done."""
        if not self.is_done or self.has_looped:
            return []
        ids, scores = tuple(self._ids), tuple(self._scores)
        coverage = 0.0 if self.notes is None else self.notes.coverage(ids, len(scores))
        total = sum(scores)
        worth = score(total, len(scores), self.options, coverage=coverage)
        return [Hypothesis(ids, total, worth, self._reason, scores)]

    def take(self, token: int, log_probability: float) -> None:
        """Follow the best candidate. At max_target_length only an end token still counts."""
        if token == self.eos_id:
            self._scores.append(log_probability)
            self.is_done = True
            return
        ids = self._ids
        if len(ids) == self._max_length:
            self.end_as_it_stands(FinishReason.LENGTH)
            return
        ids.append(token)
        self._scores.append(log_probability)
        self.last_ids[0] = token
        if len(ids) == self._next_check:
            self._look_for_loop()

    @property
    def num_steps_ahead(self) -> int:
        """Steps in which it goes on with its best candidate: to its end at the latest."""
        return self.options.max_target_length + 1 - len(self._ids)

    def end_as_it_stands(self, reason: FinishReason) -> None:
        """End without another token."""
        self._reason = reason
        self.is_done = True

    def _look_for_loop(self) -> None:
        self._next_check = next_check(len(self._ids), self.options)
        self.is_done = self.has_looped = is_looping(self._ids, self.source_ids)


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


def follow_best(
    searches: Sequence[GreedySearch],
    rows: Sequence[list[int]],
    *,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> list[int]:
    """Some steps of many greedy searches, each as far as it goes. The arrays: (num_steps, num_rows), the best ones.

    Returns the steps that each search took: fewer than there are where it was done before.
    """
    tokens = ids.T.tolist()
    scores = log_probabilities.T.tolist()
    taken = []
    for search, (row,) in zip(searches, rows, strict=True):
        num_steps = 0
        for token, log_probability in zip(tokens[row], scores[row], strict=True):
            search.take(token, log_probability)
            num_steps += 1
            if search.is_done:
                break
        taken.append(num_steps)
    return taken
