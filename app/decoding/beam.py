"""Beam search as in section 6.1 of the paper, one step at a time.

A step takes the 2 * beam_size best continuations of all live hypotheses, by summed log-probability. An
end token among the first beam_size of them completes its hypothesis; the best beam_size others live on.
The search is done when beam_size hypotheses are complete (first come, first served), or at
max_target_length, where those that do not end with the very next token are scored as they stand.

The first step has one live hypothesis, so that a beam takes one row until it spreads. Of one row the beam
can want no more than its own best beam_size + 1: a row's sums are its log-probabilities and a constant, at most one
of its candidates is the end token, and beam_size others fill the beam.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import DecodingOptions, FinishReason, Hypothesis
from app.decoding.scoring import finished


class Prefix(NamedTuple):
    """A hypothesis' subwords, last first: hypotheses share what they have in common."""

    token: int
    before: Prefix | None

    @staticmethod
    def ids(prefix: Prefix | None) -> tuple[int, ...]:
        """In reading order."""
        backwards: list[int] = []
        while prefix is not None:
            backwards.append(prefix.token)
            prefix = prefix.before
        return tuple(reversed(backwards))


class BeamSearch:
    """One sentence's beam search; see app.decoding.search for what its members mean.

    totals: summed log-probability of each live hypothesis, best first.
    """

    def __init__(self, options: DecodingOptions, *, bos_id: int, eos_id: int) -> None:
        self.options = options
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.num_candidates = options.beam_size + 1
        self.last_ids = [bos_id]
        self.parents = [0]
        self.is_done = False
        self.totals = [0.0]
        self._prefixes: list[Prefix | None] = [None]
        self._length = 0
        self._complete: list[Hypothesis] = []

    def fresh(self) -> BeamSearch:
        """The same search, not begun."""
        return BeamSearch(self.options, bos_id=self.bos_id, eos_id=self.eos_id)

    def hypotheses(self) -> list[Hypothesis]:
        """The best num_hypotheses by score, best first; empty until it is done."""
        if not self.is_done:
            return []
        return sorted(self._complete, key=lambda found: -found.score)[: self.options.num_hypotheses]

    def take(self, totals: list[float], tokens: list[int], parents: list[int]) -> None:
        """Follow the 2 * beam_size best continuations, best first: their sums, subwords and live hypotheses."""
        beam_size = self.options.beam_size
        kept: list[int] = []
        ended: set[int] = set()
        for rank, token in enumerate(tokens):
            if token != self.eos_id:
                kept.append(rank)
                if len(kept) == beam_size:
                    break  # whatever follows has a rank of beam_size or more
            elif rank < beam_size:
                ended.add(parents[rank])
                self._complete_one(parents[rank], totals[rank], FinishReason.STOP)
        if len(self._complete) >= beam_size or not kept:
            self.is_done = True
        elif self._length == self.options.max_target_length:
            for parent, total in enumerate(self.totals):
                if parent not in ended:
                    self._complete_one(parent, total, FinishReason.LENGTH)
            self.is_done = True
        else:
            self._length += 1
            self.parents = [parents[rank] for rank in kept]
            self.last_ids = [tokens[rank] for rank in kept]
            self.totals = [totals[rank] for rank in kept]
            self._prefixes = [Prefix(tokens[rank], self._prefixes[parents[rank]]) for rank in kept]

    def _complete_one(self, parent: int, total: float, reason: FinishReason) -> None:
        ids = Prefix.ids(self._prefixes[parent])
        self._complete.append(finished(ids, total, reason=reason, options=self.options))


def advance_beams(
    searches: Sequence[BeamSearch],
    rows: Sequence[list[int]],
    *,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """One step of beams of one width and one number of live hypotheses.

    rows: of each search, the rows of its live hypotheses. The arrays: (num_rows, num_candidates), each
    row descending, at least min(beam_size + 1, vocab_size) wide. Sums are taken in float64. Of equal
    sums the better live hypothesis comes first, then the better candidate.
    """
    k = min(searches[0].num_candidates, ids.shape[1])
    width = 2 * searches[0].options.beam_size
    chosen = np.array(rows)  # (searches, live)
    num_searches = len(searches)
    totals = np.array([search.totals for search in searches])  # (searches, live), float64
    sums = log_probabilities[chosen, :k] + totals[:, :, None]  # (searches, live, k), float64
    sums = sums.reshape(num_searches, -1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, :width]
    each = np.arange(num_searches)[:, None]
    best = sums[each, order].tolist()
    tokens = ids[chosen, :k].reshape(num_searches, -1)[each, order].tolist()
    parents = (order // k).tolist()
    for search, *continuations in zip(searches, best, tokens, parents, strict=True):
        search.take(*continuations)
