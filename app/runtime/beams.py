"""A beam that a runner advances by itself: what it stands at, in one block of memory that both sides read and write.

No decision is made here: whose beam it is, when it is handed over and when it is taken back is the engine's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Numbers of eight bytes before a beam's rows, and which of them change, as native/beams.h has them.
NUM_HEADER = 8
LENGTH, NUM_COMPLETE = 3, 5


class BeamOutcome(IntEnum):
    """What has become of a beam in the last step that it took: the forward's last one, unless it is done.

    CONTINUES: it has its next hypotheses, and its rows their columns. DONE: as many are complete as were to be; rows
    are as they were. UNDECIDED: nothing, and its candidates are the engine's to judge.
    """

    CONTINUES = 0
    DONE = 1
    UNDECIDED = 2


class EndedHypothesis(NamedTuple):
    """A hypothesis that has said the end token: its sum with it, the steps before, and its rank after those."""

    total: float
    length: int
    rank: int


class SharedBeam:
    """The beam of one sentence: one hypothesis before its first step, beam_size live ones after each.

    start_and_end: the tokens' ids. rows: cache row of each live hypothesis, beam_size from the beginning on: before the
    first step the first is the one hypothesis', and the others hold its source. history: said, parents, sums of every
    step, one after another, beam_size each: subword, which hypothesis before it each one continues, sum of
    log-probabilities. last_length: steps after which the next one is open. num_to_complete: hypotheses, beside those
    that are complete already, that end the search. num_columns: source subwords the attention to which is kept of every
    step; 0: none is.
    """

    def __init__(
        self,
        *,
        start_and_end: tuple[int, int],
        rows: Sequence[int],
        history: tuple[Sequence[int], Sequence[int], Sequence[float]],
        last_length: int,
        num_to_complete: int,
        num_columns: int = 0,
    ) -> None:
        self.beam_size = b = len(rows)
        said, parents, sums = history
        num_said, most = len(said), last_length * b
        self._said = NUM_HEADER + b
        self._parents = self._said + most
        self._sums = self._parents + most
        self._complete = self._sums + most
        self._attention = self._complete + 3 * (num_to_complete + b)
        self._num_columns = num_columns
        self._numbers = numbers = np.empty(self._attention + (most * num_columns + 1) // 2, np.int64)
        self._floats = numbers.view(np.float64)
        self.address: int = numbers.ctypes.data
        bos_id, eos_id = start_and_end
        header = (b, eos_id, last_length, num_said // b, num_to_complete, 0, bos_id, num_columns)
        numbers[: self._said] = (*header, *rows)
        numbers[self._said : self._said + num_said] = said
        numbers[self._parents : self._parents + num_said] = parents
        self._floats[self._sums : self._sums + num_said] = sums

    @property
    def length(self) -> int:
        """Steps taken."""
        return int(self._numbers[LENGTH])

    @property
    def rows(self) -> list[int]:
        """Cache row of each live hypothesis, in order."""
        found: list[int] = self._numbers[NUM_HEADER : self._said].tolist()
        return found

    def move_row(self, source: int, target: int) -> None:
        """A hypothesis' columns stand in another row now."""
        rows = self._numbers[NUM_HEADER : self._said]
        rows[rows == source] = target

    def history(self) -> tuple[list[int], list[int], list[float]]:
        """What was said, parents and sums of all steps, as given at first."""
        num_said = self.length * self.beam_size
        said = self._numbers[self._said : self._said + num_said].tolist()
        parents = self._numbers[self._parents : self._parents + num_said].tolist()
        return said, parents, self._floats[self._sums : self._sums + num_said].tolist()

    def ended(self) -> list[EndedHypothesis]:
        """Those that have become complete since it was handed over, in order of time."""
        count = 3 * int(self._numbers[NUM_COMPLETE])
        found = self._floats[self._complete : self._complete + count].reshape(-1, 3).tolist()
        return [EndedHypothesis(total, int(length), int(rank)) for total, length, rank in found]

    def attention(self, first: int, end: int) -> NDArray[np.float32]:
        """That of the steps first..end-1, (steps, live hypotheses before the step, num_columns), taken since then."""
        width = self.beam_size * self._num_columns
        kept = self._numbers[self._attention :].view(np.float32)[first * width : end * width]
        return kept.reshape(-1, self.beam_size, self._num_columns)
