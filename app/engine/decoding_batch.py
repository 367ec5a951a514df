"""The sequences that hold rows: their searches, their rows, and the calls of the runner that advance them.

`EngineCore` decides which sequences are decoded and for how long. `Outcomes` decides what follows a failure. Neither
handles rows. A sequence is decoded in one of three ways. The sequences of all three share each call of the runner:

- plain greedy searches run as rows of arrays (`GreedyRows`);
- beams that are plain, or only record attention, are offloaded to a runner that can advance them (`engine/beams.py`);
- all other searches are advanced on the host after each step.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import cast

import numpy as np

from app.decoding.greedy import GreedyRows, GreedySearch
from app.decoding.scoring import rows_without_best_scores, rows_without_scores
from app.decoding.search import SteppedSearch, advance
from app.engine.beams import apply_outcomes, can_offload, offload, offload_new
from app.engine.row_allocator import RowAllocator, RowCopies
from app.engine.sequence import Sequence, Status
from app.engine.stats import StepStats
from app.errors import EngineFailure
from app.runtime.interface import FREE_ROW_ID, Floats, RestrictingRunner, Runner, StepInput, StepOutput
from app.runtime.stop_condition import StopCondition

logger = logging.getLogger(__name__)


class DecodingBatch:
    """The running sequences of one runner. Belongs to the engine thread.

    selected: the sequences that `select` has chosen for the next forward. After a forward they are its sequences.
    greedy: the plain greedy searches.
    """

    def __init__(self, runner: Runner, allocator: RowAllocator) -> None:
        """allocator: the runner's rows. The scheduler reserves them for sequences and frees them."""
        limits = self._limits = runner.limits
        self._runner, self._allocator = runner, allocator
        free_id = FREE_ROW_ID if limits.skips_free_rows else 0
        self.greedy = GreedyRows(
            limits.num_rows, limits.max_target_length, eos_id=limits.eos_id, free_id=free_id
        )
        self.selected: Collection[Sequence] = ()
        # Of `selected`: those whose beams the runner advances, and those whose searches the host advances.
        self._on_runner: list[Sequence] = []
        self._on_host: list[Sequence] = []
        self._paused: dict[Sequence, None] = {}
        self._num_paused = 0
        self._returns_one_step = True  # whether the last forward's output is shaped as a single step's output

    def encode(self, sequences: list[Sequence], stats: StepStats) -> Iterator[tuple[Sequence, EngineFailure]]:
        """Encode new sequences together, or one by one if that fails. Each must hold its first row.

        Yields the sequences that fail alone, with their errors.
        """
        error = self._encode_together(sequences)
        if error is None:
            return
        if len(sequences) == 1:
            yield sequences[0], error
            return
        logger.error(
            "%d sentences failed together and are encoded one by one: %s", len(sequences), error.message
        )
        stats.num_retried += len(sequences)
        for sequence in sequences:
            own_error = self._encode_together([sequence])
            if own_error is not None:
                yield sequence, own_error

    def _encode_together(self, sequences: list[Sequence]) -> EngineFailure | None:
        try:
            self._runner.encode([one.source_ids for one in sequences], [one.rows[0] for one in sequences])
            self._restrict(sequences)
        except EngineFailure as error:
            return error
        return None

    def _restrict(self, sequences: list[Sequence]) -> None:
        """Restrict the first row of each sequence to the shortlist that its search chooses among, if the runner can."""
        if self._limits.num_shortlists:
            sources, rows = [one.source_ids for one in sequences], [one.rows[0] for one in sequences]
            runner = cast(RestrictingRunner, self._runner)
            runner.restrict(rows, sources, [one.shortlist for one in sequences])

    def add(self, sequences: Collection[Sequence]) -> None:
        """Begin the searches of new sequences. A sequence whose encoding failed holds no rows, and is left out."""
        for sequence in sequences:
            if sequence.rows and isinstance(sequence.search, GreedySearch):
                self.greedy.add(sequence.rows[0], sequence.search)
        if self._limits.advances_beams:
            copies = offload_new(sequences, self._allocator)
            if copies:
                self._runner.copy_rows(*copies.arrays())

    def remove(self, sequence: Sequence) -> None:
        """Stop a sequence's search. The sequence keeps its rows until the scheduler frees them."""
        self._paused.pop(sequence, None)
        for row in sequence.rows[:1]:
            self.greedy.remove(row)

    def compact(self, running: Iterable[Sequence], admitted: Iterable[Sequence], *, closes_all: bool) -> None:
        """Close the holes between rows, where the runner needs it.

        If the beams of `admitted` will fill all holes after this step, the holes are left open, because decoding the
        holes once costs less than copying rows. closes_all: whether to close the holes even then. After a failure this
        keeps the rows of the failed sequences, whose contents may be its cause, out of the next forward.
        """
        if self._limits.skips_free_rows:
            self._allocator.compact(self._allocator.num_rows)  # copies nothing, but lowers `end`
            return
        num_soon_used = sum(one.num_reserved_rows - len(one.rows) for one in admitted if one.rows)
        for sequence in running:
            if isinstance(sequence.search, GreedySearch):  # the allocator copies `length` columns of a row
                sequence.length = int(self.greedy.lengths[sequence.rows[0]])
        moves = self._allocator.compact(0 if closes_all else num_soon_used)
        if moves:
            sources, targets, _ = moves.arrays()
            self.greedy.move(sources, targets)
            self._runner.copy_rows(*moves.arrays())

    def select(self, running: dict[Sequence, None], callers: Collection[str] | None) -> None:
        """Choose the running sequences that the next forward takes, and pause the others.

        callers: those whose sequences are taken; None: all. All sequences are taken if none of these callers has a
        running one, or if the runner cannot skip rows.
        """
        selected: Collection[Sequence] = running
        if callers is not None and self._limits.skips_free_rows:
            selected = [one for one in running if one.caller in callers] or running
        self.selected, self._num_paused = selected, len(running) - len(selected)
        if not self._num_paused:
            for sequence in self._paused:
                self._resume(sequence)
            self._paused.clear()
            return
        for sequence in running:
            must_pause, is_paused = sequence.caller not in (callers or ()), sequence in self._paused
            if must_pause and not is_paused:
                self._paused[sequence] = None
                if isinstance(sequence.search, GreedySearch):
                    self.greedy.pause(sequence.rows[0])
            elif is_paused and not must_pause:
                del self._paused[sequence]
                self._resume(sequence)

    def _resume(self, sequence: Sequence) -> None:
        """Continue a paused sequence. Its rows are unchanged since the pause."""
        if isinstance(sequence.search, GreedySearch):
            self.greedy.add(sequence.rows[0], sequence.search)

    def count_rows(self, stats: StepStats) -> None:
        """Record how many rows the next forward decodes, and how many of the reserved rows no beam uses yet."""
        allocator = self._allocator
        num_reserved = allocator.num_reserved
        stats.num_rows = allocator.num_occupied if self._limits.skips_free_rows else allocator.end
        stats.num_paused = self._num_paused
        if self._num_paused:
            stats.num_rows = self.num_held_rows
            num_reserved = sum(one.num_reserved_rows for one in self.selected)
        stats.num_idle_rows = num_reserved - stats.num_rows

    @property
    def num_held_rows(self) -> int:
        """Rows that the forward's sequences still hold. Cancelled sequences hold none."""
        if self._num_paused:
            return sum(len(one.rows) for one in self.selected)
        return self._allocator.num_occupied

    def forward(self, max_steps: int, stop: StopCondition, stats: StepStats) -> StepOutput:
        """Decode the selected sequences in one call of the runner. Raises EngineFailure.

        max_steps: the maximum number of steps of the call. stop: the condition that ends the call earlier. stats: gets
        the numbers of steps.
        """
        step = self._next_input(max_steps, stop)
        stats.num_steps = step.num_steps
        # The first step of a beam decodes one row, because the beam has one hypothesis then.
        stats.num_spared_row_steps = sum(
            one.num_reserved_rows - 1 for one in self._on_runner if not one.length
        )
        # With offloaded beams the output is that of the last step only.
        self._returns_one_step = step.num_steps == 1 or bool(self._on_runner)
        return self._runner.decode(step)

    def without_scores(self, output: StepOutput) -> list[Sequence]:
        """Return the sequences whose rows have no scores, or no distributions although their searches want them."""
        find_broken = rows_without_scores if self._returns_one_step else rows_without_best_scores
        broken = find_broken(output.log_probabilities)
        if output.distributions is not None:
            broken |= self._rows_without_distributions(output.distributions)
        return [one for one in self.selected if not broken.isdisjoint(one.rows)] if broken else []

    def _rows_without_distributions(self, distributions: Floats) -> frozenset[int]:
        """Return the rows that have a NaN and whose search reads distributions."""
        rows = [row for one in self.selected if one.search.wants_distributions for row in one.rows]
        is_broken = np.isnan(distributions[rows]).any(axis=1)
        return frozenset(np.array(rows)[is_broken].tolist())

    def advance(self, output: StepOutput, stats: StepStats) -> Iterator[Sequence]:
        """Advance every search by a forward's output, and yield each sequence whose search is done.

        The caller must end each sequence before it takes the next one, because other beams spread into the freed rows.
        A search that has looped is restarted and not yielded. So is a search whose result among its shortlist is bad.
        """
        stats.num_steps = output.num_steps
        if self._on_runner:
            yield from self._apply_beam_outcomes(output, stats)
        if len(self.greedy):
            yield from self._advance_greedy(output, stats)
        on_host = [one for one in (*self._on_host, *self._on_runner) if self._awaits_host(one)]
        if on_host:
            yield from self._advance_on_host(on_host, output, stats)

    def _awaits_host(self, sequence: Sequence) -> bool:
        """Whether the search of a sequence must take the last step of the last forward on the host."""
        return sequence.status is Status.RUNNING and sequence.beam is None

    def _apply_beam_outcomes(self, output: StepOutput, stats: StepStats) -> Iterator[Sequence]:
        """Yield sequences whose beams are done. Reclaimed beams that are not done take the last step on the host."""
        for sequence, own_steps in apply_outcomes(
            self._on_runner, output.num_steps, output.outcomes, self._allocator
        ):
            stats.num_spared_row_steps += sequence.num_reserved_rows * (output.num_steps - own_steps)
            if not self._restart_if_bad(sequence, stats):
                yield sequence

    def _advance_greedy(self, output: StepOutput, stats: StepStats) -> Iterator[Sequence]:
        """Advance the plain greedy searches, and yield the sequences that are done."""
        scores, ids = output.log_probabilities, output.ids
        if self._returns_one_step:
            scores, ids = scores[:, :1].T, ids[:, :1].T
        done = self.greedy.advance(scores, ids)
        if not self._returns_one_step and len(done) == len(self.greedy):
            stats.num_steps = max(one.num_last_steps for one in done)
        for one in done:
            stats.num_spared_row_steps += stats.num_steps - one.num_last_steps
            sequence = self._allocator.owner(one.row)
            sequence.num_steps += one.num_steps
            if not self._restart_if_bad(sequence, stats):
                yield sequence

    def _advance_on_host(
        self, sequences: list[Sequence], output: StepOutput, stats: StepStats
    ) -> Iterator[Sequence]:
        """Advance searches on the host by one step, yield the sequences that are done, and move the others' rows."""
        advance(
            [cast(SteppedSearch, sequence.search) for sequence in sequences],
            [sequence.rows for sequence in sequences],
            log_probabilities=output.log_probabilities,
            ids=output.ids,
            distributions=output.distributions,
            alignment=output.alignment,
        )
        branching: list[Sequence] = []
        for sequence in sequences:
            sequence.num_steps += 1
            sequence.length += 1
            if sequence.search.is_done:
                if not self._restart_if_bad(sequence, stats):
                    yield sequence
                elif not sequence.has_looped:
                    continue  # it restarts with the whole vocabulary, and `_restart_if_bad` has set its rows
            search = sequence.search
            if not search.is_done and (len(search.parents) > 1 or len(sequence.rows) > 1):
                branching.append(sequence)
        if branching:
            self._move_rows(branching)

    def _restart_if_bad(self, sequence: Sequence, stats: StepStats) -> bool:
        """Restart a search that has looped, or whose result among its shortlist is bad. Returns whether it restarts.

        The second attempt takes the whole vocabulary.
        """
        min_mean = self._limits.min_log_probability
        if sequence.search.has_looped:
            self.remove(sequence)
            sequence.restart_guarded()
            self._restrict([sequence])
            stats.num_looped += 1
            return True
        if min_mean is None or sequence.shortlist is None or sequence.mean_log_probability() >= min_mean:
            return False
        self.remove(sequence)
        self._allocator.keep_first(sequence)
        sequence.restart_widened()
        self._restrict([sequence])
        self.add([sequence])
        stats.num_widened += 1
        return True

    def _move_rows(self, branching: list[Sequence]) -> None:
        """Give each hypothesis' row its parent's cache, then offload beams where possible.

        branching: running sequences that have, or will have, several rows. `reorder` copies caches among the rows that
        a sequence holds, and `copy_rows` to new rows.
        """
        reorders, spreads = RowCopies(), RowCopies()
        for sequence in branching:
            self._allocator.follow_parents(sequence, reorders=reorders, spreads=spreads)
        if reorders:
            self._runner.reorder(*reorders.columns())
        if spreads:
            self._runner.copy_rows(*spreads.arrays())
        if self._limits.advances_beams:
            for sequence in filter(can_offload, branching):
                offload(sequence)

    def _next_input(self, max_steps: int, stop: StopCondition) -> StepInput:
        """Return the input of the next forward.

        It has several steps only if all its searches are plain greedy, or all are beams on the runner. Rows 0..end-1
        are decoded. `greedy` holds only searches of selected sequences.
        """
        self._on_runner, self._on_host = [], []
        num_rows = self._allocator.end
        if len(self.greedy) < len(self.selected):
            for sequence in self.selected:
                if sequence.beam is not None:
                    self._on_runner.append(sequence)
                elif not isinstance(sequence.search, GreedySearch):
                    self._on_host.append(sequence)
        ids, positions = self.greedy.last_ids[:num_rows], self.greedy.lengths[:num_rows]
        if self._on_host:
            ids, positions = ids.copy(), positions.copy()
        num_candidates = max([1, *(one.search.num_candidates for one in self._on_runner)])
        wants_distributions = False
        wants_alignment = any(one.search.wants_alignment for one in self._on_runner)
        for sequence in self._on_host:
            search = sequence.search
            ids[sequence.rows], positions[sequence.rows] = search.last_ids, sequence.length
            num_candidates = max(num_candidates, search.num_candidates)
            wants_distributions = wants_distributions or search.wants_distributions
            wants_alignment = wants_alignment or search.wants_alignment
        if self._on_host or (self._on_runner and len(self.greedy)):
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
            beams=[sequence.beam for sequence in self._on_runner if sequence.beam is not None],
            stop=stop,
        )
