"""Beam search as in section 6.1 of the paper, one step at a time.

A step takes the 2 * beam_size best continuations of all live hypotheses, by summed log-probability. An
end token among the first beam_size of them completes its hypothesis; the best beam_size others live on; one that
is impossible (log-probability of negative infinity) is no continuation. When the search is done is
`EarlyStop`'s to say; at max_target_length it is, and those that do not end with the very next token are
scored as they stand.

The first step has one live hypothesis, so that a beam takes one row until it spreads. Of one row the beam
can want no more than its own best beam_size + 1: a row's sums are its log-probabilities and a constant, at most one
of its candidates is the end token, and beam_size others fill the beam.

What hypotheses have said is not copied from step to step: a step notes whom each one continues, and only an answer is
looked up, from its end to its beginning.
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

# Of so few candidates the best are found sooner in lists than in arrays: one sentence's with a beam of 4, not of 8.
FEW_CANDIDATES = 40


class CompletedHypothesis(NamedTuple):
    """A hypothesis that has ended: its rank of those alive after `length` steps, and what it is worth.

    total: summed log-probability, of the end token too where it has one. Its subwords are looked up when it is an
    answer: most are none.
    """

    total: float
    score: float
    reason: FinishReason
    length: int
    rank: int


class BeamHistory(NamedTuple):
    """Of every step's live hypotheses, one step after another: subword; whom before it each continues; sum with it."""

    tokens: list[int]
    parents: list[int]
    sums: list[float]


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
        self.details: TokenDetails | None = None
        self.num_candidates = options.beam_size + 1
        self.last_ids = [bos_id]
        self.parents = [0]
        self.is_done = False
        self.has_looped = False
        self.totals = [0.0]
        # Of every step's live hypotheses, one step after another: where the step begins; subword, sum, parent of each.
        self._starts: list[int] = []
        self._tokens: list[int] = []
        self._sums: list[float] = []
        self._parents: list[int] = []
        self._complete: list[CompletedHypothesis] = []
        self._next_check = next_check(0, options)
        self._num_to_complete = options.num_to_complete
        self._max_length = options.max_target_length

    def fresh(self) -> BeamSearch:
        """The same search, not begun."""
        return BeamSearch(self.options, bos_id=self.bos_id, eos_id=self.eos_id, source_ids=self.source_ids)

    def prefixes(self) -> list[tuple[int, ...]]:
        """What each live hypothesis has said."""
        return [tuple(self._backtrack(len(self._starts), index)[0]) for index in range(len(self.totals))]

    def hypotheses(self) -> list[Hypothesis]:
        """The best num_hypotheses by score, best first; empty until it is done."""
        return (
            list(map(self._hypothesis, self._best_complete())) if self.is_done and not self.has_looped else []
        )

    @property
    def last_plain_length(self) -> int:
        """Steps after which the next one may take more than to follow the best and to count those that are complete.

        0 where any step may, or where not beam_size hypotheses have lived after every step so far. Notes that are
        taken of a step are not looked at.
        """
        is_plain = self.options.early_stop is EarlyStop.FIRST
        if not is_plain or len(self._tokens) != self.options.beam_size * len(self._starts):
            return 0
        return min(self._max_length, self._next_check - 1) if self._next_check > 0 else self._max_length

    @property
    def num_left_to_complete(self) -> int:
        """Hypotheses that end the search as soon as they are complete."""
        return self._num_to_complete - len(self._complete)

    def history(self) -> BeamHistory:
        """What it has come through."""
        return BeamHistory(self._tokens, self._parents, self._sums)

    def sync_from(
        self, history: BeamHistory, ended: Sequence[tuple[float, int, int]], *, is_done: bool
    ) -> None:
        """Go on behind plain steps that somebody else took, by the same rules.

        history: of all steps, beam_size hypotheses each. ended: those that have said the end token since, in order: sum
        with it, steps before it, rank after those. is_done: whether they are enough.
        """
        beam_size = self.options.beam_size
        self._tokens, self._parents, self._sums = history
        self._starts = list(range(0, len(history.tokens), beam_size))
        if history.tokens:
            self.last_ids, self.parents = history.tokens[-beam_size:], history.parents[-beam_size:]
            self.totals = history.sums[-beam_size:]
        for total, length, rank in ended:
            self._complete_one(rank, total, FinishReason.STOP, length)
        self.is_done = is_done

    def extend(
        self,
        totals: list[float],
        tokens: list[int],
        parents: list[int],
        ended: Sequence[tuple[int, float]] = (),
    ) -> None:
        """Follow the best beam_size continuations but ends, best first: their sums, subwords and live hypotheses.

        ended: those of the best beam_size of all that are ends, best first: live hypothesis and sum.
        """
        for parent, total in ended:
            self._complete_one(parent, total, FinishReason.STOP, len(self._starts))
        if totals and totals[-1] == -math.inf:
            num_possible = totals.index(-math.inf)
            totals, tokens, parents = totals[:num_possible], tokens[:num_possible], parents[:num_possible]
        if not tokens or (self._complete and self._is_enough(totals[0])):
            self.is_done = True
            if not self._complete:
                self.end_as_it_stands(FinishReason.CONSTRAINT)
            return
        if len(self._starts) == self._max_length:
            self.end_as_it_stands(FinishReason.LENGTH, but=[parent for parent, _ in ended])
            return
        self.totals, self.last_ids, self.parents = totals, tokens, parents
        self._starts.append(len(self._tokens))
        self._tokens += tokens
        self._sums += totals
        self._parents += parents
        if len(self._starts) == self._next_check:
            self._check_loop()

    def end_as_it_stands(self, reason: FinishReason, *, but: Sequence[int] = ()) -> None:
        """End every live hypothesis without another token, but those that have ended with one."""
        for parent, total in enumerate(self.totals):
            if parent not in but:
                self._complete_one(parent, total, reason, len(self._starts))
        self.is_done = True

    def _is_enough(self, best_live: float) -> bool:
        """Whether the rule of `EarlyStop` ends the search. best_live: the best sum that would live on."""
        if self.options.early_stop is EarlyStop.FIRST:
            return len(self._complete) >= self._num_to_complete
        if len(self._complete) < self.options.num_hypotheses:
            return False
        self._complete = self._best_complete()
        return best_reachable(best_live, self.options) <= self._complete[-1].score

    def _best_complete(self) -> list[CompletedHypothesis]:
        return sorted(self._complete, key=lambda found: -found.score)[: self.options.num_hypotheses]

    def _complete_one(self, parent: int, total: float, reason: FinishReason, length: int) -> None:
        num_tokens = length + 1 if reason is FinishReason.STOP else length
        coverage = 0.0
        if self.details is not None and self.options.coverage_penalty:
            coverage = self.details.coverage(tuple(self._backtrack(length, parent)[0]), num_tokens)
        worth = score(total, num_tokens, self.options, coverage=coverage)
        self._complete.append(CompletedHypothesis(total, worth, reason, length, parent))

    def _hypothesis(self, found: CompletedHypothesis) -> Hypothesis:
        ids, totals = self._backtrack(found.length, found.rank)
        if found.reason is FinishReason.STOP:
            totals.append(found.total)
        scores = [after - before for before, after in zip([0.0, *totals], totals, strict=False)]
        return Hypothesis(tuple(ids), found.total, found.score, found.reason, tuple(scores))

    def _backtrack(self, length: int, index: int) -> tuple[list[int], list[float]]:
        """Of a hypothesis that was alive after `length` steps, its subwords and the sum with each, in reading order."""
        ids: list[int] = []
        totals: list[float] = []
        for start in reversed(self._starts[:length]):
            place = start + index
            ids.append(self._tokens[place])
            totals.append(self._sums[place])
            index = self._parents[place]
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
    """One step of beams of one width, over one vocabulary.

    rows: of each search, the rows of its live hypotheses. The arrays: (num_rows, num_candidates), each
    row descending, at least min(beam_size + 1, vocab_size) wide. Sums are taken in float64. Of equal
    sums the better live hypothesis comes first, then the better candidate.
    """
    k = min(searches[0].num_candidates, ids.shape[1])
    if sum(map(len, rows)) * k > FEW_CANDIDATES:
        _advance_together(searches, rows, log_probabilities=log_probabilities, ids=ids, k=k)
        return
    for search, own in zip(searches, rows, strict=True):
        scores, tokens = log_probabilities.take(own, axis=0).tolist(), ids.take(own, axis=0).tolist()
        _advance_alone(search, scores, tokens, k)


def _advance_alone(search: BeamSearch, scores: list[list[float]], ids: list[list[int]], k: int) -> None:
    """As `_advance_together`, in lists. scores, ids: of each live hypothesis the candidates, of which k count."""
    beam_size, eos_id = search.options.beam_size, search.eos_id
    sums = [total + one for total, own in zip(search.totals, scores, strict=True) for one in own[:k]]
    said = [token for own in ids for token in own[:k]]
    order = sorted(range(len(sums)), key=sums.__getitem__, reverse=True)[
        : 2 * beam_size
    ]  # of equal ones the first
    ended: list[tuple[int, float]] = []
    if eos_id in said:
        ends = [place for place in order[:beam_size] if said[place] == eos_id and sums[place] > -math.inf]
        ended = [(place // k, sums[place]) for place in ends]
        order = [place for place in order if said[place] != eos_id]
    order = order[:beam_size]
    parents = [place // k for place in order]
    search.extend([sums[place] for place in order], [said[place] for place in order], parents, ended)


def _advance_together(
    searches: Sequence[BeamSearch],
    rows: Sequence[list[int]],
    *,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
    k: int,
) -> None:
    """As `advance_beams`, in arrays; k: candidates of a row that count."""
    beam_size, eos_id = searches[0].options.beam_size, searches[0].eos_id
    chosen, totals = _live(searches, rows)  # each (searches, live)
    sums = log_probabilities.take(chosen, axis=0)[..., :k] + totals[:, :, None]  # float64
    sums = sums.reshape(len(searches), -1)  # (searches, live * k), as all that follow
    said = ids.take(chosen, axis=0)[..., :k].reshape(sums.shape)
    starts = np.arange(0, sums.size, sums.shape[1])[:, None]  # of each search's candidates in all of them
    order = (-sums).argsort(axis=1, kind="stable")
    ended: dict[int, list[tuple[int, float]]] = {}
    is_end = said == eos_id
    if is_end.any():
        for index, rank in np.argwhere(is_end.take(order[:, :beam_size] + starts)).tolist():
            place = int(order[index, rank])
            if sums[index, place] > -math.inf:
                ended.setdefault(index, []).append((place // k, float(sums[index, place])))
        sums[is_end] = -math.inf
        order = (-sums).argsort(axis=1, kind="stable")
    order = order[:, :beam_size]
    best, tokens = sums.take(order + starts).tolist(), said.take(order + starts).tolist()
    parents = (order // k).tolist()
    ends = map(ended.get, range(len(searches)), repeat(()))
    for search, *continuations in zip(searches, best, tokens, parents, ends, strict=True):
        search.extend(*continuations)


def _live(
    searches: Sequence[BeamSearch], rows: Sequence[list[int]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows and sums of live hypotheses, each (searches, live): where a search has fewer, impossible ones fill it up."""
    totals = [search.totals for search in searches]
    most = max(map(len, rows))
    if most != min(map(len, rows)):
        totals = [own + [-math.inf] * (most - len(own)) for own in totals]
        rows = [own + own[:1] * (most - len(own)) for own in rows]
    shape = len(searches), most
    return (
        np.fromiter(chain.from_iterable(rows), np.int64, most * len(searches)).reshape(shape),
        np.fromiter(chain.from_iterable(totals), np.float64, most * len(searches)).reshape(shape),
    )
