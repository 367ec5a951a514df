"""Greedy search, which takes the most probable subword at each step. The result equals that of a beam of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.decoding.loop_guard import is_looping, next_check
from app.decoding.options import DecodingOptions, FinishReason, Hypothesis
from app.decoding.scoring import score
from app.decoding.token_details import TokenDetails

ONLY_PARENT = [0]
# Size of the buffer of recent steps, as a multiple of max_length. At least 2, because the buffer always keeps the last
# max_length steps and a call may add as many. If smaller, kept steps are moved more often. If larger, the buffer takes
# more memory.
BUFFER_MAX_LENGTHS = 4
# More subwords than any hypothesis has.
NEVER = 1 << 30


class GreedySearch:
    """One sentence's greedy search. `app.decoding.search` explains its members."""

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
        self.details: TokenDetails | None = None
        self.last_ids = [bos_id]
        self.is_done = False
        self.has_looped = False
        self._ids: list[int] = []
        self._scores: list[float] = []
        self._reason = FinishReason.STOP
        self._next_check = next_check(0, options)
        self._max_length = options.max_target_length

    def fresh(self) -> GreedySearch:
        """The same search before its first step."""
        return GreedySearch(self.options, bos_id=self.bos_id, eos_id=self.eos_id, source_ids=self.source_ids)

    def prefixes(self) -> list[tuple[int, ...]]:
        """The subwords of the only live hypothesis."""
        return [tuple(self._ids)]

    def hypotheses(self) -> list[Hypothesis]:
        """The result. Empty until the search is done, and if it looped."""
        if not self.is_done or self.has_looped:
            return []
        ids, scores = tuple(self._ids), tuple(self._scores)
        coverage = 0.0 if self.details is None else self.details.coverage(ids, len(scores))
        total = sum(scores)
        value = score(total, len(scores), self.options, coverage=coverage)
        return [Hypothesis(ids, total, value, self._reason, scores)]

    def append(self, token: int, log_probability: float) -> None:
        """Append the best candidate of a step.

        After max_target_length subwords, any token except the end token ends the search and is not appended.
        """
        if token == self.eos_id:
            self._scores.append(log_probability)
            self.is_done = True
            return
        ids = self._ids
        if len(ids) == self._max_length:
            self.end_unfinished(FinishReason.LENGTH)
            return
        ids.append(token)
        self._scores.append(log_probability)
        self.last_ids[0] = token
        if len(ids) == self._next_check:
            self._check_loop()

    def append_all(self, tokens: list[int], log_probabilities: list[float]) -> int:
        """Append tokens as `append` does, until the search is done. Returns how many tokens it took."""
        # The leading tokens before the next decision. They are checked only for the end token.
        num_plain = min(len(tokens), self.next_decision - 1 - len(self._ids))
        plain = tokens[:num_plain]
        if self.eos_id in plain:
            num_plain = plain.index(self.eos_id)
        if num_plain > 0:
            self._ids += tokens[:num_plain]
            self._scores += log_probabilities[:num_plain]
            self.last_ids[0] = self._ids[-1]
        for number in range(max(0, num_plain), len(tokens)):
            self.append(tokens[number], log_probabilities[number])
            if self.is_done:
                return number + 1
        return len(tokens)

    @property
    def num_tokens(self) -> int:
        """The number of subwords of the only hypothesis."""
        return len(self._ids)

    @property
    def next_decision(self) -> int:
        """The length at which the search must do more than append: check for a loop, or end with too many subwords."""
        return min(self._max_length + 1, self._next_check) if self._next_check > 0 else self._max_length + 1

    def end_unfinished(self, reason: FinishReason) -> None:
        """End without another token."""
        self._reason = reason
        self.is_done = True

    def _check_loop(self) -> None:
        self._next_check = next_check(len(self._ids), self.options)
        self.is_done = self.has_looped = is_looping(self._ids, self.source_ids)


class FinishedRow(NamedTuple):
    """A row whose search is done. num_steps: steps of the whole search. num_last_steps: those in the last call."""

    row: int
    num_steps: int
    num_last_steps: int


class GreedyRows:
    """Greedy searches in the rows of a runner. A few array operations take one step of all searches.

    The arrays hold a row's new subwords. Its search gets them only at a length where it must decide
    (`GreedySearch.next_decision`), at its end token, and on `sync`.

    last_ids, lengths: (num_rows,) the last subword and the number of subwords of each row. A row without a search has
    free_id and 0.
    """

    def __init__(self, num_rows: int, max_length: int, *, eos_id: int, free_id: int) -> None:
        """max_length: the maximum number of subwords of a search, the end token included."""
        self.last_ids = np.full(num_rows, free_id, np.int32)
        self.lengths = np.zeros(num_rows, np.int32)
        self._eos_id = eos_id
        self._free_id = free_id
        # Subwords and scores of the last steps, for every row, with or without a search. `_end` is the index after the
        # last step. `_make_room` keeps at least the last max_length steps.
        self._end = 0
        self._max_length = max_length
        self._ids = np.zeros((BUFFER_MAX_LENGTHS * max_length, num_rows), np.int32)
        self._scores = np.zeros(self._ids.shape, np.float32)
        # `has_search` of each row.
        self._has_search = np.zeros(num_rows, bool)
        self._next_decisions = np.full(num_rows, NEVER, np.int32)
        self._max_steps = np.full(num_rows, NEVER, np.int32)
        # A lower bound of the steps that all searches can take before one of them must decide. `remove` leaves it as it
        # is, although the other searches may take more.
        self._num_plain_steps = NEVER
        self._searches: dict[int, GreedySearch] = {}

    def __len__(self) -> int:
        return len(self._searches)

    def add(self, row: int, search: GreedySearch) -> None:
        """Run a search in this row, from its current state."""
        self._searches[row] = search
        self._has_search[row] = True
        num_tokens, next_decision = search.num_tokens, search.next_decision
        self.last_ids[row], self.lengths[row] = search.last_ids[0], num_tokens
        self._next_decisions[row], self._max_steps[row] = next_decision, search.options.max_target_length + 1
        self._num_plain_steps = min(self._num_plain_steps, next_decision - 1 - num_tokens)

    def pause(self, row: int) -> None:
        """Sync the row's search and remove it; `add` resumes it."""
        self.sync(row)
        self.remove(row)

    def has_search(self, row: int) -> bool:
        """Whether a search runs in this row."""
        return row in self._searches

    def remove(self, row: int) -> None:
        """Remove the row's search, if there is one, without a sync."""
        if self._searches.pop(row, None) is not None:
            self._clear(row)

    def move(self, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> None:
        """Move searches from source rows to target rows. No target is a source. A source row may have no search."""
        for values in (self.last_ids, self.lengths, self._has_search, self._next_decisions, self._max_steps):
            values[targets] = values[sources]
        for recent in (self._ids, self._scores):
            recent[:, targets] = recent[:, sources]
        self._clear(sources)
        moved = dict(zip(sources.tolist(), targets.tolist(), strict=True))
        self._searches = {moved.get(row, row): search for row, search in self._searches.items()}

    def _clear(self, rows: int | NDArray[np.int32]) -> None:
        self._has_search[rows] = False
        self.last_ids[rows], self.lengths[rows] = self._free_id, 0
        self._next_decisions[rows] = self._max_steps[rows] = NEVER

    def num_steps_ahead(self, max_steps: int) -> int:
        """The least number of steps that any search may still take, its last one included; at most `max_steps`."""
        if max_steps <= self._num_plain_steps:
            return max_steps
        return min(max_steps, int((self._max_steps - self.lengths).min()))

    def advance(self, log_probabilities: NDArray[np.float32], ids: NDArray[np.int64]) -> list[FinishedRow]:
        """Advance all searches by some steps. Returns the rows whose search is done.

        log_probabilities, ids: (num_steps, n), the best candidates of rows 0 to n - 1. All searches are in these rows.
        Only end tokens follow an end token.
        """
        num_new, num_rows = ids.shape
        begin, end = self._make_room(num_new)
        self._ids[begin:end, :num_rows] = ids
        self._scores[begin:end, :num_rows] = log_probabilities
        has_search, lengths, last_ids = (
            self._has_search[:num_rows],
            self.lengths[:num_rows],
            self.last_ids[:num_rows],
        )
        np.copyto(last_ids, ids[-1], where=has_search, casting="unsafe")
        np.add(lengths, num_new, out=lengths, where=has_search)
        needs_sync = last_ids == self._eos_id
        self._num_plain_steps -= num_new
        has_decisions = self._num_plain_steps < 0
        if has_decisions:
            needs_sync |= lengths >= self._next_decisions[:num_rows]
        done = []
        for row in needs_sync.nonzero()[0].tolist():
            search = self._searches.get(row)
            if search is None:  # free_id may equal the end token
                continue
            num_taken = self.sync(row)
            if search.is_done:
                done.append(FinishedRow(row, num_taken, num_taken + num_new - int(lengths[row])))
            else:
                self._next_decisions[row] = search.next_decision
        if has_decisions:
            self._num_plain_steps = int((self._next_decisions - self.lengths).min()) - 1
        return done

    def sync(self, row: int) -> int:
        """Pass a row's new subwords to its search, which must not be done. Returns the steps of the search so far."""
        search = self._searches[row]
        num_known = search.num_tokens
        unsynced = slice(self._end - int(self.lengths[row]) + num_known, self._end)
        return num_known + search.append_all(
            self._ids[unsynced, row].tolist(), self._scores[unsynced, row].tolist()
        )

    def _make_room(self, num_steps: int) -> tuple[int, int]:
        """Make room for steps in the arrays, and return their begin and end. Keeps the last max_length steps."""
        if self._end + num_steps > len(self._ids):
            for recent in (self._ids, self._scores):
                recent[: self._max_length] = recent[self._end - self._max_length : self._end]
            self._end = self._max_length
        begin, self._end = self._end, self._end + num_steps
        return begin, self._end
