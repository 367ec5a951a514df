"""The sequences of the next forward, and the runner's input that they add up to.

A sequence is decoded in one of three ways: plain greedy searches run as rows of arrays (`GreedyRows`), plain beams are
offloaded to the runner if it can advance them (`app.engine.beams`), and all other searches are advanced one by one on
the host after each step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from app.decoding.greedy import GreedyRows, GreedySearch
from app.engine.beams import offload_new
from app.engine.sequence import Sequence, Status
from app.engine.slots import RowCopies, Slots
from app.runtime.interface import FREE_ROW_ID, Limits, StepInput
from app.runtime.stop_condition import StopCondition


class RunningBatch:
    """Belongs to the engine thread.

    greedy: the plain greedy searches.
    on_runner: sequences of the last forward whose beams were offloaded to the runner for it.
    on_host: sequences of the last forward whose searches the host advances.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        free_id = FREE_ROW_ID if limits.skips_free_rows else 0
        self.greedy = GreedyRows(
            limits.num_rows, limits.max_target_length, eos_id=limits.eos_id, free_id=free_id
        )
        self.on_runner: list[Sequence] = []
        self.on_host: list[Sequence] = []
        self._paused: dict[Sequence, None] = {}

    def select(self, running: dict[Sequence, None], callers: Collection[str] | None) -> Collection[Sequence]:
        """Return the running sequences that the next forward takes, and pause the others.

        callers: those whose sequences are taken; None: all. All are taken also when none of these callers has a
        running sequence, and when the runner cannot skip the other rows.
        """
        present: Collection[Sequence] = running
        if callers is not None and self._limits.skips_free_rows:
            present = [one for one in running if one.caller in callers] or running
        if len(present) == len(running):
            for sequence in self._paused:
                self._resume(sequence)
            self._paused.clear()
            return present
        for sequence in running:
            pauses, has_paused = sequence.caller not in (callers or ()), sequence in self._paused
            if pauses and not has_paused:
                self._paused[sequence] = None
                if isinstance(sequence.search, GreedySearch):
                    self.greedy.pause(sequence.rows[0])
            elif has_paused and not pauses:
                del self._paused[sequence]
                self._resume(sequence)
        return present

    def _resume(self, sequence: Sequence) -> None:
        """Continue a paused sequence. Its rows are unchanged since the pause."""
        if isinstance(sequence.search, GreedySearch):
            self.greedy.add(sequence.rows[0], sequence.search)

    def add(self, admitted: list[Sequence], slots: Slots) -> RowCopies:
        """Add sequences that were encoded. Returns the copies that give each new beam row its source's cache.

        A sequence whose encoding failed holds no rows.
        """
        for sequence in admitted:
            if sequence.rows and isinstance(sequence.search, GreedySearch):
                self.greedy.add(sequence.rows[0], sequence.search)
        return offload_new(admitted, slots) if self._limits.advances_beams else RowCopies()

    def remove(self, sequence: Sequence) -> None:
        """Stop a sequence's search. It keeps its rows until the scheduler frees them."""
        self._paused.pop(sequence, None)
        for row in sequence.rows[:1]:
            self.greedy.remove(row)

    def compact(self, slots: Slots, running: Iterable[Sequence], num_left: int) -> RowCopies:
        """Return the copies that close the holes between rows, as `Slots.compact`; none when the runner skips holes."""
        if self._limits.skips_free_rows:
            return slots.compact(slots.num_rows)
        for sequence in running:
            if isinstance(sequence.search, GreedySearch):
                sequence.length = int(self.greedy.lengths[sequence.rows[0]])
        moves = slots.compact(num_left)
        if moves:
            sources, targets, _ = moves.arrays()
            self.greedy.move(sources, targets)
        return moves

    @property
    def to_advance(self) -> list[Sequence]:
        """Running sequences of the last forward whose searches must take its last step on the host."""
        in_forward = (*self.on_host, *self.on_runner)
        return [one for one in in_forward if one.status is Status.RUNNING and one.beam is None]

    @property
    def num_unspread_rows(self) -> int:
        """Rows of offloaded beams that their first step does not decode."""
        return sum(one.num_reserved_rows - 1 for one in self.on_runner if not one.length)

    def next_input(
        self, present: Collection[Sequence], num_rows: int, max_steps: int, stop: StopCondition
    ) -> StepInput:
        """Return the input of the next forward: several steps if no search on the host must see each one.

        present: the sequences to decode; `greedy` holds no other searches. num_rows: rows 0..num_rows-1 are decoded.
        max_steps: of the forward. stop: ends it earlier.
        """
        self.on_runner, self.on_host = [], []
        if len(self.greedy) < len(present):
            for sequence in present:
                if sequence.beam is not None:
                    self.on_runner.append(sequence)
                elif not isinstance(sequence.search, GreedySearch):
                    self.on_host.append(sequence)
        ids, positions = self.greedy.last_ids[:num_rows], self.greedy.lengths[:num_rows]
        if self.on_host:
            ids, positions = ids.copy(), positions.copy()
        num_candidates = max([1, *(one.search.num_candidates for one in self.on_runner)])
        wants_distributions = False
        wants_alignment = any(one.search.wants_alignment for one in self.on_runner)
        for sequence in self.on_host:
            search = sequence.search
            ids[sequence.rows], positions[sequence.rows] = search.last_ids, sequence.length
            num_candidates = max(num_candidates, search.num_candidates)
            wants_distributions = wants_distributions or search.wants_distributions
            wants_alignment = wants_alignment or search.wants_alignment
        if self.on_host or (self.on_runner and len(self.greedy)):
            max_steps = 1
        elif len(self.greedy):
            max_steps = self.greedy.num_steps_ahead(max_steps)
        return StepInput(
            ids,
            positions,
            min(num_candidates, self._limits.vocab_size),
            max_steps,
            wants_distributions=wants_distributions,
            wants_alignment=wants_alignment,
            beams=[sequence.beam for sequence in self.on_runner if sequence.beam is not None],
            stop=stop,
        )
