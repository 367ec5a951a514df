"""Decides when a beam is offloaded to the runner and reclaimed. `app/decoding/beam.py` defines the rules of the search.

A beam that is plain, or only records attention, can take several steps inside one call of the runner, as long as a step
only ranks continuations. It is offloaded with all its rows, usually before its first step. It is reclaimed when it is
done, and before each step that the search itself must take: the last step, a step that a check for repetition
(`app.decoding.loop_guard`) follows, a step with too few continuations, and a step with a NaN or an infinite best score.
`app/runtime/beams.py` is the memory that both sides share. `native/beams.cpp` on a CPU and `cuda/beams.cu` on a GPU
repeat the rules of `app/decoding/beam.py`, and tests compare their answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.decoding.beam import BeamHistory, BeamSearch
from app.decoding.greedy import GreedySearch
from app.decoding.guided import GuidedSearch
from app.engine.row_allocator import RowAllocator, RowCopies
from app.engine.sequence import Sequence
from app.runtime.beams import BeamOutcome, SharedBeam

# An int, because it is compared for each beam and call, and an enum compares more slowly.
CONTINUES = int(BeamOutcome.CONTINUES)


def can_offload(sequence: Sequence) -> bool:
    """Whether a runner may take the next step of a sequence's search."""
    search = sequence.search
    return not isinstance(search, GreedySearch) and sequence.length < search.last_runner_length


def offload(sequence: Sequence) -> None:
    """Copy the state of a sequence's search to a beam for the runner. Requires `can_offload`.

    Each row of the sequence must hold the cache of its hypothesis.
    """
    search = sequence.search
    assert not isinstance(search, GreedySearch)
    sequence.beam = SharedBeam(
        start_and_end=(search.bos_id, search.eos_id),
        rows=sequence.rows,
        history=search.history(),
        max_length=search.last_runner_length,
        num_to_complete=search.num_left_to_complete,
        num_columns=len(search.source_ids) if search.wants_alignment else 0,
    )


def offload_new(sequences: Iterable[Sequence], allocator: RowAllocator) -> RowCopies:
    """Offload the beams of new sequences where possible.

    Returns the copies of the cross-attention cache from the first row of each of these beams to its other rows.
    """
    copies = RowCopies()
    for sequence in sequences:
        if sequence.rows and can_offload(sequence):
            allocator.occupy_all(sequence, copies)
            offload(sequence)
    return copies


def reclaim(sequence: Sequence, allocator: RowAllocator, *, is_done: bool) -> None:
    """Copy an offloaded beam's state to its search, and order the sequence's rows like the hypotheses.

    is_done: whether the beam has enough complete hypotheses.
    """
    beam, search = sequence.beam, sequence.search
    assert beam is not None
    history, ended = BeamHistory(*beam.history()), beam.ended()
    if isinstance(search, GuidedSearch):
        search.sync_from(history, ended, is_done=is_done, attention=beam.attention)
    else:
        assert isinstance(search, BeamSearch)
        search.sync_from(history, ended, is_done=is_done)
    parents, size = history.parents, beam.beam_size
    sequence.rows, sequence.beam = beam.rows, None
    sequence.ancestry = [tuple(parents[start : start + size]) for start in range(0, len(parents), size)]
    if not parents:
        allocator.keep_first(sequence)


def apply_outcomes(
    sequences: Iterable[Sequence], num_steps: int, outcomes: Iterable[int], allocator: RowAllocator
) -> list[tuple[Sequence, int]]:
    """Apply a forward's outcomes to its offloaded beams.

    Returns each done sequence with the number of steps that it took in the forward.
    sequences: those whose beams the forward advanced; some may have ended meanwhile. outcomes: one for each sequence. A
    beam that is UNDECIDED is reclaimed, and its search must still take the forward's last step.
    """
    done = []
    for sequence, outcome in zip(sequences, outcomes, strict=True):
        if sequence.beam is None:
            continue
        if outcome == CONTINUES:
            sequence.num_steps += num_steps
            sequence.length += num_steps
            continue
        is_done = outcome == BeamOutcome.DONE
        own_steps = sequence.beam.length - sequence.length + is_done
        sequence.num_steps += own_steps
        sequence.length += own_steps
        reclaim(sequence, allocator, is_done=is_done)
        if is_done:
            done.append((sequence, own_steps))
    return done
