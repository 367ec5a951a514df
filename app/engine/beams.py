"""Beams that the runner advances by itself: which, from when on, and until when.

A beam is handed over where for some steps its search has nothing to decide but which continuations live on: from the
beginning mostly, with all its rows. It is taken back when it is done, and for a step that is the search's: the last
one, one after which a loop is looked for, one with too few continuations, or without scores.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.decoding.beam import BeamHistory, BeamSearch
from app.decoding.greedy import GreedySearch
from app.decoding.guided import GuidedSearch
from app.engine.sequence import Sequence
from app.engine.slots import RowCopies, Slots
from app.runtime.beams import BeamOutcome, SharedBeam

CONTINUES = int(BeamOutcome.CONTINUES)  # looked at once a sentence and step


def can_offload(sequence: Sequence) -> bool:
    """Whether the next step of its search is one that a runner may take."""
    search = sequence.search
    return not isinstance(search, GreedySearch) and sequence.length < search.last_plain_length


def offload(sequence: Sequence) -> None:
    """Let the runner advance its beam, which can be led: all its rows hold what they should."""
    search = sequence.search
    assert not isinstance(search, GreedySearch)
    sequence.beam = SharedBeam(
        start_and_end=(search.bos_id, search.eos_id),
        rows=sequence.rows,
        history=search.history(),
        last_length=search.last_plain_length,
        num_to_complete=search.num_left_to_complete,
        num_columns=len(search.source_ids) if search.wants_alignment else 0,
    )


def offload_new(sequences: Iterable[Sequence], slots: Slots) -> RowCopies:
    """Let the runner advance those beams of newcomers that can be led. Returns what gives their rows the source."""
    copies = RowCopies()
    for sequence in sequences:
        if sequence.rows and can_offload(sequence):
            slots.occupy_all(sequence, copies)
            offload(sequence)
    return copies


def reclaim(sequence: Sequence, slots: Slots, *, is_done: bool) -> None:
    """Let its search stand where its beam does, and its rows be in order."""
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
        slots.keep_first(sequence)


def apply_outcomes(
    sequences: Iterable[Sequence], num_steps: int, outcomes: Iterable[int], slots: Slots
) -> list[tuple[Sequence, int]]:
    """What follows from a forward for those whose beams it was given. Returns who are done, each with its steps in it.

    sequences: who were given, those that have ended meanwhile among them. Whose last step is their search's to take
    stand before it, with their beams taken back.
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
        reclaim(sequence, slots, is_done=is_done)
        if is_done:
            done.append((sequence, own_steps))
    return done
