"""The memory of one beam, which the engine shares with the runner that advances the beam. Decides nothing.

The rules of beam search are those of `app.decoding.beam`. `native/beams.cpp` applies them to this memory, and
`cuda/beams.cu`, which `app.runtime.cuda_beams` launches, applies them on a GPU. `app.engine.beams` decides which steps
the runner takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The header has NUM_HEADER eight-byte numbers: beam size, id of the end token, maximum number of steps, steps taken,
# number of hypotheses to complete, number of hypotheses completed so far, id of the start token, number of source
# subwords whose attention is recorded. The header must agree with native/beams.h, and the numbers before START_ID also
# with `DeviceBeam` in cuda/beams.cu. The names below NUM_HEADER are indices of these numbers.
NUM_HEADER = 8
BEAM_SIZE, _, _, LENGTH, _, NUM_COMPLETE, START_ID = range(7)


class BeamOutcome(IntEnum):
    """The result of a beam's last step in a call.

    CONTINUES: the beam has its next hypotheses, and its rows hold the cache of these hypotheses.
    DONE: enough hypotheses are complete. The rows are unchanged.
    UNDECIDED: the step is not taken. The Python search advances the beam from the step's candidates.
    """

    CONTINUES = 0
    DONE = 1
    UNDECIDED = 2


class EndedHypothesis(NamedTuple):
    """A hypothesis that ended with the end token.

    total: summed log-probability, end token included. length: steps before the end token. rank: its index among the
    hypotheses that were live after those steps.
    """

    total: float
    length: int
    rank: int


class SharedBeam:
    """One sentence's beam. It has one hypothesis before the first step and beam_size live ones after each step.

    The memory is an array of eight-byte numbers: the header, the rows, the tokens of all steps, the parents of all
    steps, the sums of all steps, and the complete hypotheses. The attention follows as float32.
    """

    def __init__(
        self,
        *,
        start_and_end: tuple[int, int],
        rows: Sequence[int],
        history: tuple[Sequence[int], Sequence[int], Sequence[float]],
        max_length: int,
        num_to_complete: int,
        num_columns: int = 0,
    ) -> None:
        """Allocate the memory and write the state of a search to it.

        start_and_end: ids of the start and the end token.
        rows: the beam_size cache rows of the live hypotheses. Before the first step rows[0] belongs to the only
            hypothesis, and the others hold its source.
        history: tokens, parents (index before the step) and summed log-probabilities, beam_size for each step.
        max_length: the number of steps after which the next one is UNDECIDED.
        num_to_complete: the search ends when this many further hypotheses are complete.
        num_columns: source subwords whose attention is recorded in every step; 0 records none.
        """
        self.beam_size = b = len(rows)
        tokens, parents, sums = history
        num_entries, max_entries = len(tokens), max_length * b
        self._tokens = NUM_HEADER + b
        self._parents = self._tokens + max_entries
        self._sums = self._parents + max_entries
        self._complete = self._sums + max_entries
        self._attention = self._complete + 3 * (num_to_complete + b)
        self._num_columns = num_columns
        self._numbers = numbers = np.empty(self._attention + (max_entries * num_columns + 1) // 2, np.int64)
        self._floats = numbers.view(np.float64)
        self.address: int = numbers.ctypes.data
        bos_id, eos_id = start_and_end
        header = (b, eos_id, max_length, num_entries // b, num_to_complete, 0, bos_id, num_columns)
        numbers[: self._tokens] = (*header, *rows)
        numbers[self._tokens : self._tokens + num_entries] = tokens
        numbers[self._parents : self._parents + num_entries] = parents
        self._floats[self._sums : self._sums + num_entries] = sums

    @property
    def length(self) -> int:
        """Steps taken."""
        return int(self._numbers[LENGTH])

    @property
    def rows(self) -> list[int]:
        """The cache row of each live hypothesis, best first. Before the first step, the rows of the constructor."""
        rows: list[int] = self._numbers[NUM_HEADER : self._tokens].tolist()
        return rows

    def copy_state(
        self,
        header: NDArray[np.int32],
        rows: NDArray[np.int32],
        tokens: NDArray[np.int32],
        sums: NDArray[np.float64],
    ) -> None:
        """Copy the state to the arrays of a runner that does not use this memory. Arrays may be longer than needed.

        header: the numbers of the memory's header before START_ID. rows, tokens, sums: cache row, last subword and
        summed log-probability of each live hypothesis. Before the first step, `tokens` gets the start token for each
        of the beam_size rows, and nothing is written to `sums`.
        """
        numbers, size = self._numbers, self.beam_size
        header[:START_ID] = numbers[:START_ID]
        rows[:size] = numbers[NUM_HEADER : self._tokens]
        if length := self.length:
            first = (length - 1) * size
            tokens[:size] = numbers[self._tokens + first : self._tokens + first + size]
            sums[:size] = self._floats[self._sums + first : self._sums + first + size]
        else:
            tokens[:size] = numbers[START_ID]

    def append(
        self,
        tokens: NDArray[np.int32],
        parents: NDArray[np.int32],
        sums: NDArray[np.float64],
        *,
        rows: NDArray[np.int32] | None = None,
        ended: Sequence[EndedHypothesis] = (),
    ) -> None:
        """Append steps of a runner that does not use this memory.

        tokens, parents, sums: (steps, beam_size).
        rows: (beam_size,) cache rows after these steps; None if the rows are unchanged.
        ended: the hypotheses that ended in these steps, oldest first.
        """
        first, end = self.length * self.beam_size, self.length * self.beam_size + tokens.size
        for start, values in ((self._tokens, tokens), (self._parents, parents)):
            self._numbers[start + first : start + end] = values.reshape(-1)
        self._floats[self._sums + first : self._sums + end] = sums.reshape(-1)
        self._numbers[LENGTH] += len(tokens)
        if rows is not None:
            self._numbers[NUM_HEADER : self._tokens] = rows
        for hypothesis in ended:
            at = self._complete + 3 * int(self._numbers[NUM_COMPLETE])
            self._floats[at : at + 3] = hypothesis
            self._numbers[NUM_COMPLETE] += 1

    def record_attention(self, attention: NDArray[np.float32]) -> None:
        """Record the next step's attention, if the beam records attention. Call this before `append`.

        attention: (cache rows, source subwords); the second axis may be longer than num_columns.
        """
        rows = self.rows if self.length else self.rows[:1]
        first = self.length * self.beam_size * self._num_columns
        kept = self._numbers[self._attention :].view(np.float32)[
            first : first + len(rows) * self._num_columns
        ]
        kept[:] = attention[rows, : self._num_columns].reshape(-1)

    def move_row(self, source: int, target: int) -> None:
        """Record that the cache of row `source` is now in row `target`."""
        rows = self._numbers[NUM_HEADER : self._tokens]
        rows[rows == source] = target

    def history(self) -> tuple[list[int], list[int], list[float]]:
        """Tokens, parents and sums of all steps, laid out as the constructor's `history`."""
        num_entries = self.length * self.beam_size
        tokens = self._numbers[self._tokens : self._tokens + num_entries].tolist()
        parents = self._numbers[self._parents : self._parents + num_entries].tolist()
        return tokens, parents, self._floats[self._sums : self._sums + num_entries].tolist()

    def ended(self) -> list[EndedHypothesis]:
        """Hypotheses that the runner has completed with the end token, oldest first."""
        count = 3 * int(self._numbers[NUM_COMPLETE])
        records = self._floats[self._complete : self._complete + count].reshape(-1, 3).tolist()
        return [EndedHypothesis(total, int(length), int(rank)) for total, length, rank in records]

    def attention(self, first: int, end: int) -> NDArray[np.float32]:
        """Attention of steps first..end-1: (steps, beam_size, num_columns), by the hypothesis live before the step.

        In the first step only the first hypothesis has values. Steps before this object was made are undefined.
        """
        width = self.beam_size * self._num_columns
        kept = self._numbers[self._attention :].view(np.float32)[first * width : end * width]
        return kept.reshape(-1, self.beam_size, self._num_columns)
