"""Beam search as in section 6.1 of the paper, one step at a time.

A step takes the 2 * beam_size best continuations of all live hypotheses, by summed log-probability. An
end token among the first beam_size of them completes its hypothesis; the best beam_size others live on; one that
is impossible (log-probability of negative infinity) is no continuation. When the search is done is
`EarlyStop`'s to say; at max_target_length it is, and those that do not end with the very next token are
scored as they stand.

The first step has one live hypothesis, so that a beam takes one row until it spreads. Of one row the beam
can want no more than its own best beam_size + 1: a row's sums are its log-probabilities and a constant, at most one
of its candidates is the end token, and beam_size others fill the beam.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.loop_guard import is_looping, next_check
from app.decoding.notes import Notes
from app.decoding.options import DecodingOptions, EarlyStop, FinishReason, Hypothesis
from app.decoding.scoring import best_reachable, finished

# A hypothesis' last subword, its sum with it, and what was before: hypotheses share what they have in common.
Branch = tuple[int, float, "Branch | None"]


def unwound(branch: Branch | None) -> tuple[list[int], list[float]]:
    """Its subwords and the sum with each, in reading order."""
    ids: list[int] = []
    totals: list[float] = []
    while branch is not None:
        token, total, branch = branch
        ids.append(token)
        totals.append(total)
    return ids[::-1], totals[::-1]


class BeamSearch:
    """One sentence's beam search; see app.decoding.search for what its members mean.

    totals: summed log-probability of each live hypothesis, best first.
    """

    wants_distributions = False
    wants_alignment = False

    def __init__(
        self, options: DecodingOptions, *, bos_id: int, eos_id: int, source_ids: Sequence[int] = ()
    ) -> None:
        self.options = options
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.source_ids = source_ids
        self.notes: Notes | None = None
        self.num_candidates = options.beam_size + 1
        self.last_ids = [bos_id]
        self.parents = [0]
        self.is_done = False
        self.has_looped = False
        self.totals = [0.0]
        self._branches: list[Branch | None] = [None]
        self._length = 0
        self._complete: list[Hypothesis] = []
        self._next_check = next_check(0, options)
        self._num_to_complete = options.num_to_complete

    def fresh(self) -> BeamSearch:
        """The same search, not begun."""
        return BeamSearch(self.options, bos_id=self.bos_id, eos_id=self.eos_id, source_ids=self.source_ids)

    def prefixes(self) -> list[tuple[int, ...]]:
        """What each live hypothesis has said."""
        return [tuple(unwound(branch)[0]) for branch in self._branches]

    def hypotheses(self) -> list[Hypothesis]:
        """The best num_hypotheses by score, best first; empty until it is done."""
        return self._best_complete() if self.is_done and not self.has_looped else []

    def take(self, totals: list[float], tokens: list[int], parents: list[int]) -> None:
        """Follow the 2 * beam_size best continuations, best first: their sums, subwords and live hypotheses."""
        beam_size = self.options.beam_size
        if totals[-1] == -math.inf:
            num_possible = totals.index(-math.inf)
            totals, tokens, parents = totals[:num_possible], tokens[:num_possible], parents[:num_possible]
        ended: list[int] = []
        if self.eos_id in tokens:
            for parent, total, token in zip(parents[:beam_size], totals, tokens, strict=False):
                if token == self.eos_id:
                    ended.append(parent)
                    self._complete_one(parent, total, FinishReason.STOP)
            kept = [rank for rank, token in enumerate(tokens) if token != self.eos_id]
            totals, tokens = [totals[rank] for rank in kept], [tokens[rank] for rank in kept]
            parents = [parents[rank] for rank in kept]
        totals, tokens, parents = totals[:beam_size], tokens[:beam_size], parents[:beam_size]
        if not tokens or self._is_enough(totals[0]):
            self.is_done = True
            if not self._complete:
                self.end_as_it_stands(FinishReason.CONSTRAINT)
        elif self._length == self.options.max_target_length:
            self.end_as_it_stands(FinishReason.LENGTH, but=ended)
        else:
            self._length += 1
            self.parents, self.last_ids, self.totals = parents, tokens, totals
            before = [self._branches[parent] for parent in parents]
            self._branches = list(zip(tokens, totals, before, strict=True))
            if self._length == self._next_check:
                self._look_for_loop()

    def end_as_it_stands(self, reason: FinishReason, *, but: Sequence[int] = ()) -> None:
        """End every live hypothesis without another token, but those that have ended with one."""
        for parent, total in enumerate(self.totals):
            if parent not in but:
                self._complete_one(parent, total, reason)
        self.is_done = True

    def _is_enough(self, best_live: float) -> bool:
        """Whether the rule of `EarlyStop` ends the search. best_live: the best sum that would live on."""
        if self.options.early_stop is EarlyStop.FIRST:
            return len(self._complete) >= self._num_to_complete
        if len(self._complete) < self.options.num_hypotheses:
            return False
        self._complete = self._best_complete()
        return best_reachable(best_live, self.options) <= self._complete[-1].score

    def _best_complete(self) -> list[Hypothesis]:
        return sorted(self._complete, key=lambda found: -found.score)[: self.options.num_hypotheses]

    def _complete_one(self, parent: int, total: float, reason: FinishReason) -> None:
        ids, totals = unwound(self._branches[parent])
        if reason is FinishReason.STOP:
            totals.append(total)
        scores = [after - before for before, after in zip([0.0, *totals], totals, strict=False)]
        own_ids = tuple(ids)
        coverage = 0.0 if self.notes is None else self.notes.coverage(own_ids, len(scores))
        self._complete.append(
            finished(own_ids, scores, total, reason=reason, options=self.options, coverage=coverage)
        )

    def _look_for_loop(self) -> None:
        self._next_check = next_check(self._length, self.options)
        self.is_done = self.has_looped = is_looping(unwound(self._branches[0])[0], self.source_ids)


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
    sums = (
        log_probabilities.take(chosen, axis=0)[..., :k] + totals[:, :, None]
    )  # (searches, live, k), float64
    sums = sums.reshape(num_searches, -1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, :width]
    each = np.arange(num_searches)[:, None]
    best = sums[each, order].tolist()
    tokens = ids.take(chosen, axis=0)[..., :k].reshape(num_searches, -1)[each, order].tolist()
    parents = (order // k).tolist()
    for search, *continuations in zip(searches, best, tokens, parents, strict=True):
        search.take(*continuations)
