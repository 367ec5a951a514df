"""Who shares the next forward, and how each is taken through it: what all live hypotheses ask of the runner.

Plain greedy sentences run in rows of arrays (`GreedyRows`); plain beams are the runner's where it advances them
(`app.engine.beams`); the others' searches are asked one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from app.decoding.greedy import GreedyRows, GreedySearch
from app.engine.beams import offload_new
from app.engine.sequence import Sequence, Status
from app.engine.slots import RowCopies, Slots
from app.runtime.interface import UNUSED_ROW, Limits, StepInput
from app.runtime.stop_condition import StopCondition


class RunningBatch:
    """The engine thread's own.

    greedy: the plain greedy searches. led: sentences whose beams the last forward was given, others: the rest of those
    that were in it, whose searches are asked; both as they were then.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        unused_id = UNUSED_ROW if limits.skips_unused_rows else 0
        self.greedy = GreedyRows(
            limits.num_rows, limits.max_target_length, eos_id=limits.eos_id, unused_id=unused_id
        )
        self.on_runner: list[Sequence] = []
        self.on_host: list[Sequence] = []
        self._paused: dict[Sequence, None] = {}

    def select(self, running: dict[Sequence, None], chosen: Collection[str] | None) -> Collection[Sequence]:
        """Who of those that run are in the next forward: those of the chosen callers, or all.

        None: all; so too where none of the chosen runs, and where the runner would take the others' rows with it.
        """
        present: Collection[Sequence] = running
        if chosen is not None and self._limits.skips_unused_rows:
            present = [one for one in running if one.caller in chosen] or running
        if len(present) == len(running):
            for sequence in self._paused:
                self._resume(sequence)
            self._paused.clear()
            return present
        for sequence in running:
            pauses, has_paused = sequence.caller not in (chosen or ()), sequence in self._paused
            if pauses and not has_paused:
                self._paused[sequence] = None
                if isinstance(sequence.search, GreedySearch):
                    self.greedy.pause(sequence.rows[0])
            elif has_paused and not pauses:
                del self._paused[sequence]
                self._resume(sequence)
        return present

    def _resume(self, sequence: Sequence) -> None:
        """Its rows are as they were when it paused."""
        if isinstance(sequence.search, GreedySearch):
            self.greedy.add(sequence.rows[0], sequence.search)

    def add(self, admitted: list[Sequence], slots: Slots) -> RowCopies:
        """Newcomers that were encoded; who failed has no rows. Returns what gives a led beam's rows its source."""
        for sequence in admitted:
            if sequence.rows and isinstance(sequence.search, GreedySearch):
                self.greedy.add(sequence.rows[0], sequence.search)
        return offload_new(admitted, slots) if self._limits.advances_beams else RowCopies()

    def remove(self, sequence: Sequence) -> None:
        """Its search does not go on. Its rows are its own still."""
        self._paused.pop(sequence, None)
        for row in sequence.rows[:1]:
            self.greedy.remove(row)

    def compact(self, slots: Slots, running: Iterable[Sequence], num_left: int) -> RowCopies:
        """As `Slots.compact`, for who runs. Where the runner passes over holes all are left."""
        if self._limits.skips_unused_rows:
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
        """Those of the last forward's sentences that run, whose searches its last step is to be told to."""
        was_in_it = (*self.on_host, *self.on_runner)
        return [one for one in was_in_it if one.status is Status.RUNNING and one.beam is None]

    @property
    def num_unspread_rows(self) -> int:
        """Rows of led beams that their first step does not decode."""
        return sum(one.num_reserved_rows - 1 for one in self.on_runner if not one.length)

    def next_input(
        self, present: Collection[Sequence], num_rows: int, max_steps: int, stop: StopCondition
    ) -> StepInput:
        """One step, or several where all sentences can go on without being looked at.

        present: those that are in it; no others' greedy searches run in `greedy`.
        num_rows: rows from the first on that are decoded. max_steps: that the forward may take. stop: what ends them.
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
