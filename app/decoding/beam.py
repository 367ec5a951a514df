"""Beam search (section 6.1 of the paper), one step at a time. This file defines the rules of beam search.

`app.runtime.beams` holds a beam in memory, and `native/beams.cpp` or `cuda/beams.cu` advances it by the same rules.
`app.engine.beams` chooses the steps that the runner takes.

A step ranks the continuations of all live hypotheses by summed log-probability and takes the best 2 * beam_size. An end
token among the best beam_size of these completes its hypothesis. The best beam_size other continuations are live next.
A continuation with log-probability of negative infinity is impossible and never taken.

`EarlyStop` decides when the search ends. The search also ends if no continuation is possible. It ends without a result
if its best live hypothesis is a loop (`app.decoding.loop_guard`). After max_target_length subwords, one more step is
ranked. Unless `EarlyStop` ends the search there, each live hypothesis that this step does not complete is scored as it
is.

Before the first step one hypothesis is live, so the first step reads the scores of one row. A step needs only the best
beam_size + 1 candidates of each row: adding the hypothesis' sum does not change their order, at most one of them is the
end token, and the other beam_size can fill the beam.

Subwords are not copied from step to step. A step records which hypothesis each new hypothesis continues. A hypothesis
is traced back from its end if it is a result, if a coverage penalty scores it, or for the check for a loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.decoding.loop_guard import is_looping, next_check
from app.decoding.options import DecodingOptions, EarlyStop, FinishReason, Hypothesis
from app.decoding.scoring import best_reachable, score
from app.decoding.token_details import TokenDetails

# The maximum number of candidates that are ranked in Python lists, which are faster than numpy for few candidates. A
# single sentence has fewer candidates than this with a beam of 4, and more with a beam of 8. If larger, many candidates
# are sorted slowly. If smaller, few candidates have the overhead of arrays.
FEW_CANDIDATES = 40


class CompletedHypothesis(NamedTuple):
    """A hypothesis that has ended. `BeamHistory` has its subwords.

    total: summed log-probability, the end token included if there is one. length: the number of steps before its end.
    rank: its index among the hypotheses that are live after these steps.
    """

    total: float
    score: float
    reason: FinishReason
    length: int
    rank: int


class BeamHistory(NamedTuple):
    """Subword, parent (index before the step) and summed log-probability of each live hypothesis, step after step."""

    tokens: list[int]
    parents: list[int]
    sums: list[float]


class BeamSearch:
    """One sentence's beam search. `app.decoding.search` explains its members.

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
        self.details: TokenDetails | None = None
        self.num_candidates = options.beam_size + 1
        self.last_ids = [bos_id]
        self.parents = [0]
        self.is_done = False
        self.has_looped = False
        self.totals = [0.0]
        # For each step the index of its first hypothesis in the lists below, which hold all steps' live hypotheses.
        self._starts: list[int] = []
        self._tokens: list[int] = []
        self._sums: list[float] = []
        self._parents: list[int] = []
        self._complete: list[CompletedHypothesis] = []
        self._next_check = next_check(0, options)
        self._num_to_complete = options.num_to_complete
        self._max_length = options.max_target_length

    def fresh(self) -> BeamSearch:
        """The same search before its first step."""
        return BeamSearch(self.options, bos_id=self.bos_id, eos_id=self.eos_id, source_ids=self.source_ids)

    def prefixes(self) -> list[tuple[int, ...]]:
        """The subwords of each live hypothesis."""
        return [tuple(self._backtrack(len(self._starts), index)[0]) for index in range(len(self.totals))]

    def hypotheses(self) -> list[Hypothesis]:
        """The best num_hypotheses by score, best first. Empty until done, and if the search looped."""
        return (
            list(map(self._hypothesis, self._best_complete())) if self.is_done and not self.has_looped else []
        )

    @property
    def last_runner_length(self) -> int:
        """The length up to which the steps from now on only rank continuations and count complete hypotheses.

        A runner may take these steps. The step after them may need a loop check or end the search at max_target_length.
        0 if the stopping rule is not FIRST, or if fewer than beam_size hypotheses were live after a step.
        """
        was_always_full = len(self._tokens) == self.options.beam_size * len(self._starts)
        if self.options.early_stop is not EarlyStop.FIRST or not was_always_full:
            return 0
        return min(self._max_length, self._next_check - 1) if self._next_check > 0 else self._max_length

    @property
    def num_left_to_complete(self) -> int:
        """How many further complete hypotheses end the search."""
        return self._num_to_complete - len(self._complete)

    def history(self) -> BeamHistory:
        """The live hypotheses of all steps."""
        return BeamHistory(self._tokens, self._parents, self._sums)

    def sync_from(
        self, history: BeamHistory, ended: Sequence[tuple[float, int, int]], *, is_done: bool
    ) -> None:
        """Adopt the state after plain steps that a runner took by the same rules.

        history: all steps, beam_size hypotheses each. ended: hypotheses that ended in the runner's steps, each with its
        sum, the number of steps before the end token, and its index among the hypotheses live after these steps.
        is_done: whether enough hypotheses are complete.
        """
        beam_size = self.options.beam_size
        self._tokens, self._parents, self._sums = history
        self._starts = list(range(0, len(history.tokens), beam_size))
        if history.tokens:
            self.last_ids, self.parents = history.tokens[-beam_size:], history.parents[-beam_size:]
            self.totals = history.sums[-beam_size:]
        for total, length, rank in ended:
            self._add_complete(rank, total, FinishReason.STOP, length)
        self.is_done = is_done

    def extend(
        self,
        totals: list[float],
        tokens: list[int],
        parents: list[int],
        ended: Sequence[tuple[int, float]] = (),
    ) -> None:
        """Advance by one step to the best beam_size continuations without end tokens, best first.

        totals, tokens, parents: the continuations' sums, subwords and the index of the live hypothesis that each
            continues.
        ended: the live hypotheses with an end token among the best beam_size continuations, best first: index and sum.
        """
        for parent, total in ended:
            self._add_complete(parent, total, FinishReason.STOP, len(self._starts))
        if totals and totals[-1] == -math.inf:
            num_possible = totals.index(-math.inf)
            totals, tokens, parents = totals[:num_possible], tokens[:num_possible], parents[:num_possible]
        if not tokens or (self._complete and self._is_enough(totals[0])):
            self.is_done = True
            if not self._complete:
                self.end_unfinished(FinishReason.CONSTRAINT)
            return
        if len(self._starts) == self._max_length:
            self.end_unfinished(FinishReason.LENGTH, excluded=[parent for parent, _ in ended])
            return
        self.totals, self.last_ids, self.parents = totals, tokens, parents
        self._starts.append(len(self._tokens))
        self._tokens += tokens
        self._sums += totals
        self._parents += parents
        if len(self._starts) == self._next_check:
            self._check_loop()

    def end_unfinished(self, reason: FinishReason, *, excluded: Sequence[int] = ()) -> None:
        """End every live hypothesis without another token. excluded: indices of those that have ended already."""
        for parent, total in enumerate(self.totals):
            if parent not in excluded:
                self._add_complete(parent, total, reason, len(self._starts))
        self.is_done = True

    def _is_enough(self, best_live: float) -> bool:
        """Whether `EarlyStop` ends the search. best_live: the best sum of a hypothesis that would stay live.

        Drops complete hypotheses that are worse than the best num_hypotheses, unless the stopping rule is FIRST.
        """
        if self.options.early_stop is EarlyStop.FIRST:
            return len(self._complete) >= self._num_to_complete
        if len(self._complete) < self.options.num_hypotheses:
            return False
        self._complete = self._best_complete()
        return best_reachable(best_live, self.options) <= self._complete[-1].score

    def _best_complete(self) -> list[CompletedHypothesis]:
        return sorted(self._complete, key=lambda hypothesis: -hypothesis.score)[: self.options.num_hypotheses]

    def _add_complete(self, parent: int, total: float, reason: FinishReason, length: int) -> None:
        """Add a complete hypothesis. parent: its index after `length` steps. total: its sum with the end token."""
        num_tokens = length + 1 if reason is FinishReason.STOP else length
        coverage = 0.0
        if self.details is not None and self.options.coverage_penalty:
            coverage = self.details.coverage(tuple(self._backtrack(length, parent)[0]), num_tokens)
        value = score(total, num_tokens, self.options, coverage=coverage)
        self._complete.append(CompletedHypothesis(total, value, reason, length, parent))

    def _hypothesis(self, complete: CompletedHypothesis) -> Hypothesis:
        ids, totals = self._backtrack(complete.length, complete.rank)
        if complete.reason is FinishReason.STOP:
            totals.append(complete.total)
        scores = [after - before for before, after in zip([0.0, *totals], totals, strict=False)]
        return Hypothesis(tuple(ids), complete.total, complete.score, complete.reason, tuple(scores))

    def _backtrack(self, length: int, index: int) -> tuple[list[int], list[float]]:
        """The subwords, and the sum after each, of the hypothesis with this index after `length` steps."""
        ids: list[int] = []
        totals: list[float] = []
        for start in reversed(self._starts[:length]):
            entry = start + index
            ids.append(self._tokens[entry])
            totals.append(self._sums[entry])
            index = self._parents[entry]
        return ids[::-1], totals[::-1]

    def _check_loop(self) -> None:
        length = len(self._starts)
        self._next_check = next_check(length, self.options)
        self.is_done = self.has_looped = is_looping(self._backtrack(length, 0)[0], self.source_ids)


def advance_beams(
    searches: Sequence[BeamSearch],
    rows: Sequence[list[int]],
    *,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Advance beams of one width over one vocabulary by one step.

    rows: for each search, the rows of its live hypotheses. log_probabilities, ids: (num_rows, num_candidates), best
    first in each row. A row has at least min(beam_size + 1, vocab_size) candidates, or only a forced subword. Sums are
    float64. Equal sums are ordered by the live hypothesis, then by the candidate, better ones first.
    """
    k = min(searches[0].num_candidates, ids.shape[1])
    if sum(map(len, rows)) * k > FEW_CANDIDATES:
        _advance_together(searches, rows, log_probabilities=log_probabilities, ids=ids, k=k)
        return
    for search, live_rows in zip(searches, rows, strict=True):
        scores, tokens = (
            log_probabilities.take(live_rows, axis=0).tolist(),
            ids.take(live_rows, axis=0).tolist(),
        )
        _advance_alone(search, scores, tokens, k)


def _advance_alone(search: BeamSearch, scores: list[list[float]], ids: list[list[int]], k: int) -> None:
    """As `advance_beams`, for one search, in lists. scores, ids: the candidates of each live hypothesis."""
    beam_size, eos_id = search.options.beam_size, search.eos_id
    sums = [total + one for total, own in zip(search.totals, scores, strict=True) for one in own[:k]]
    tokens = [token for own in ids for token in own[:k]]
    # The sort is stable, so of equal sums the first candidate comes first.
    order = sorted(range(len(sums)), key=sums.__getitem__, reverse=True)[: 2 * beam_size]
    ended: list[tuple[int, float]] = []
    if eos_id in tokens:
        ends = [index for index in order[:beam_size] if tokens[index] == eos_id and sums[index] > -math.inf]
        ended = [(index // k, sums[index]) for index in ends]
        order = [index for index in order if tokens[index] != eos_id]
    order = order[:beam_size]
    parents = [index // k for index in order]
    search.extend([sums[index] for index in order], [tokens[index] for index in order], parents, ended)


def _advance_together(
    searches: Sequence[BeamSearch],
    rows: Sequence[list[int]],
    *,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
    k: int,
) -> None:
    """As `advance_beams`, in arrays. k: how many candidates of each row are used."""
    beam_size, eos_id = searches[0].options.beam_size, searches[0].eos_id
    chosen, totals = _live(searches, rows)  # each (searches, live)
    sums = log_probabilities.take(chosen, axis=0)[..., :k] + totals[:, :, None]  # float64
    sums = sums.reshape(len(searches), -1)  # (searches, live * k), the shape of all arrays below
    tokens = ids.take(chosen, axis=0)[..., :k].reshape(sums.shape)
    starts = np.arange(0, sums.size, sums.shape[1])[:, None]  # flat index of each search's first candidate
    order = (-sums).argsort(axis=1, kind="stable")
    ended: dict[int, list[tuple[int, float]]] = {}
    is_end = tokens == eos_id
    if is_end.any():
        for index, rank in np.argwhere(is_end.take(order[:, :beam_size] + starts)).tolist():
            candidate = int(order[index, rank])
            if sums[index, candidate] > -math.inf:
                ended.setdefault(index, []).append((candidate // k, float(sums[index, candidate])))
        sums[is_end] = -math.inf
        order = (-sums).argsort(axis=1, kind="stable")
    order = order[:, :beam_size]
    best, best_tokens = sums.take(order + starts).tolist(), tokens.take(order + starts).tolist()
    parents = (order // k).tolist()
    ends = map(ended.get, range(len(searches)), repeat(()))
    for search, *continuations in zip(searches, best, best_tokens, parents, ends, strict=True):
        search.extend(*continuations)


def _live(
    searches: Sequence[BeamSearch], rows: Sequence[list[int]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows and sums of live hypotheses, each (searches, live), padded with impossible ones (negative infinity)."""
    totals = [search.totals for search in searches]
    width = max(map(len, rows))
    if width != min(map(len, rows)):
        totals = [own + [-math.inf] * (width - len(own)) for own in totals]
        rows = [own + own[:1] * (width - len(own)) for own in rows]
    shape = len(searches), width
    return (
        np.fromiter(chain.from_iterable(rows), np.int64, width * len(searches)).reshape(shape),
        np.fromiter(chain.from_iterable(totals), np.float64, width * len(searches)).reshape(shape),
    )
