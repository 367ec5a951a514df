"""Search with all options: forced subwords, constraints, sampling, and details of each token.

A guided search wraps a plain one, and passes candidates on to it. In some steps the guided search chooses the
candidates: forced subwords, subwords that the constraints allow, or a drawn subword. Only these steps need whole
distributions. In all other steps it passes on the runner's candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.beam import BeamHistory, BeamSearch, advance_beams
from app.decoding.constraints import best_candidates, constrained, is_constrained
from app.decoding.greedy import GreedySearch
from app.decoding.options import DecodingOptions, FinishReason, Hypothesis
from app.decoding.sampling import draw
from app.decoding.token_details import TokenDetails

Floats = NDArray[np.float32]
Int64s = NDArray[np.int64]


def is_guided(options: DecodingOptions) -> bool:
    """Whether the options need a guided search."""
    return _changes_candidates(options) or options.alignment


def _changes_candidates(options: DecodingOptions) -> bool:
    """Whether the options may change the candidates or scores of a plain search, or record alternatives."""
    return bool(
        is_constrained(options, length=0)
        or options.target_prefix
        or options.forced_target is not None
        or options.sampling is not None
        or options.num_alternatives
        or options.coverage_penalty
    )


def _records_details(options: DecodingOptions) -> bool:
    return bool(options.num_alternatives or options.alignment or options.coverage_penalty)


class GuidedSearch:
    """One sentence's search with all options. `app.decoding.search` explains its members.

    The forced subwords are the target_prefix, or all of forced_target and the end token.
    """

    def __init__(self, plain: GreedySearch | BeamSearch) -> None:
        """plain: a search before its first step, with the sentence's options."""
        self.options = options = plain.options
        self.bos_id, self.eos_id, self.source_ids = plain.bos_id, plain.eos_id, plain.source_ids
        self.num_candidates = max(plain.num_candidates, options.num_alternatives)
        self.wants_alignment = options.alignment or bool(options.coverage_penalty)
        self._plain = plain
        self._forced = options.target_prefix
        if options.forced_target is not None:
            self._forced = (*options.forced_target, plain.eos_id)
        self._generator: np.random.Generator | None = None
        if options.sampling is not None:
            self._generator = np.random.Generator(np.random.PCG64(options.sampling.seed))
        self._length = 0
        self._prefixes: list[tuple[int, ...]] = [()]  # of each live hypothesis
        if _records_details(options):
            plain.details = TokenDetails(options, len(plain.source_ids))
        self._follow_plain()

    def fresh(self) -> GuidedSearch:
        """The same search before its first step. Sampling draws the same subwords again."""
        return GuidedSearch(self._plain.fresh())

    def prefixes(self) -> list[tuple[int, ...]]:
        """The subwords of each live hypothesis."""
        return self._prefixes

    @property
    def last_runner_length(self) -> int:
        """The number of leading steps that only rank continuations, so that a runner may take them.

        For a beam search that only records attention it is `BeamSearch.last_runner_length`; otherwise 0.
        """
        if isinstance(self._plain, GreedySearch) or _changes_candidates(self.options):
            return 0
        return self._plain.last_runner_length

    @property
    def num_left_to_complete(self) -> int:
        """As `BeamSearch.num_left_to_complete`."""
        return self._beam.num_left_to_complete

    def history(self) -> BeamHistory:
        """As `BeamSearch.history`."""
        return self._beam.history()

    def sync_from(
        self,
        history: BeamHistory,
        ended: Sequence[tuple[float, int, int]],
        *,
        is_done: bool,
        attention: Callable[[int, int], Floats],
    ) -> None:
        """As `BeamSearch.sync_from`.

        attention: attention(first, end) returns the attention of the rows in steps first..end-1, (steps, beam_size,
            source length).
        """
        beam, beam_size = self._beam, self.options.beam_size
        beam.sync_from(history, ended, is_done=is_done)
        length = len(history.tokens) // beam_size
        details = beam.details
        assert details is not None
        for step, weights in enumerate(attention(self._length, length + is_done), self._length):
            details.add_attention(self._prefixes, weights[: len(self._prefixes)])
            if step < length:
                live = slice(step * beam_size, (step + 1) * beam_size)
                self._continue(history.parents[live], history.tokens[live])
        self._length = length
        self._follow_plain()

    @property
    def _beam(self) -> BeamSearch:
        assert isinstance(self._plain, BeamSearch)
        return self._plain

    def _continue(self, parents: Sequence[int], tokens: Sequence[int]) -> None:
        """Set the prefixes after a step. parents, tokens: (live,) the parent and the new token of each hypothesis."""
        continued = zip(parents, tokens, strict=True)
        self._prefixes = [(*self._prefixes[parent], token) for parent, token in continued]

    def hypotheses(self) -> list[Hypothesis]:
        """The hypotheses of the plain search, with the recorded details."""
        hypotheses, details = self._plain.hypotheses(), self._plain.details
        return hypotheses if details is None else [details.attach_to(one) for one in hypotheses]

    def advance(
        self,
        rows: list[int],
        *,
        log_probabilities: Floats,
        ids: Int64s,
        distributions: Floats | None,
        alignment: Floats | None,
    ) -> None:
        """Advance by one step. rows: the rows of its live hypotheses.

        log_probabilities, ids: (num_rows, num_candidates). distributions: (num_rows, vocab_size), not None if
        `wants_distributions`. alignment: (num_rows, capacity) attention to the source, where capacity is at least the
        maximum length of a source; not None if `wants_alignment`.
        """
        own_ids, own_scores = ids[rows], log_probabilities[rows]
        if self._plain.details is not None:
            attention = alignment[rows] if self.wants_alignment and alignment is not None else None
            self._plain.details.add(
                self._prefixes, ids=own_ids, log_probabilities=own_scores, alignment=attention
            )
        if self.wants_distributions:
            assert distributions is not None
            own_scores, own_ids = self._candidates(distributions[rows])
        if isinstance(self._plain, BeamSearch):
            own_rows = [list(range(len(rows)))]
            advance_beams([self._plain], own_rows, log_probabilities=own_scores, ids=own_ids)
        elif own_scores[0, 0] == -math.inf:
            self._plain.end_unfinished(FinishReason.CONSTRAINT)
        else:
            self._plain.append(int(own_ids[0, 0]), float(own_scores[0, 0]))
        self._length += 1
        self._follow_plain()
        if not self.is_done:
            self._continue(self.parents, self.last_ids)

    def _follow_plain(self) -> None:
        """Copy the plain search's members, and set whether the next step needs distributions."""
        plain = self._plain
        self.last_ids, self.parents = plain.last_ids, plain.parents
        self.is_done, self.has_looped = plain.is_done, plain.has_looped
        self.wants_distributions = (
            self._length < len(self._forced)
            or self._generator is not None
            or is_constrained(self.options, self._length)
        )

    def _candidates(self, distributions: Floats) -> tuple[Floats, Int64s]:
        """Scores and ids that may follow each live hypothesis, best first, each (live, candidates)."""
        if self._length < len(self._forced):
            return _single_candidate(self._forced[self._length], distributions)
        scores = distributions
        # Before the first subword the end token is forbidden, whatever the options.
        if not self._length or is_constrained(self.options, self._length):
            scores = constrained(scores, self._prefixes, self.options, eos_id=self.eos_id)
        sampling = self.options.sampling
        if sampling is None or self._generator is None or scores.max() == -math.inf:
            return best_candidates(scores, self._plain.num_candidates)
        return _single_candidate(draw(scores[0], sampling, self._generator), scores)


def _single_candidate(token: int, scores: Floats) -> tuple[Floats, Int64s]:
    """Scores and ids with one subword as every row's only candidate, each (rows, 1)."""
    return scores[:, [token]], np.full((len(scores), 1), token, np.int64)


def advance_guided(
    searches: Sequence[GuidedSearch],
    rows: Sequence[list[int]],
    *,
    log_probabilities: Floats,
    ids: Int64s,
    distributions: Floats | None,
    alignment: Floats | None,
) -> None:
    """Advance each search by one step, one after another. Guided searches are few and differ from each other."""
    for search, own_rows in zip(searches, rows, strict=True):
        search.advance(
            own_rows,
            log_probabilities=log_probabilities,
            ids=ids,
            distributions=distributions,
            alignment=alignment,
        )
