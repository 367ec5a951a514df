"""Beams that the runner advances by itself: which, from when on, and until when.

A beam is handed over once it has spread, where for some steps its search has nothing to decide but which continuations
live on. It is taken back when it is done, and for a step that is the search's: the last one, one after which a loop is
looked for, one with too few continuations, or without scores.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.decoding.beam import BeamSearch, History
from app.engine.sequence import Sequence
from app.runtime.beams import Beam, Outcome


def hand_over(sequence: Sequence) -> None:
    """Let the runner advance its beam, if it can: it has taken a step, and its rows hold what they should."""
    search = sequence.search
    if not isinstance(search, BeamSearch):
        return
    last_length = search.last_plain_length
    if sequence.length >= last_length:
        return
    sequence.beam = Beam(
        eos_id=search.eos_id,
        rows=sequence.rows,
        history=search.history(),
        last_length=last_length,
        num_to_complete=search.num_left_to_complete,
    )


def take_back(sequence: Sequence, *, is_done: bool) -> None:
    """Let its search stand where its beam does, and its rows be in order."""
    beam, search = sequence.beam, sequence.search
    assert beam is not None
    assert isinstance(search, BeamSearch)
    history = History(*beam.history())
    search.catch_up(history, beam.ended(), is_done=is_done)
    parents, size = history.parents, beam.beam_size
    sequence.rows, sequence.beam = beam.rows, None
    sequence.ancestry = [tuple(parents[start : start + size]) for start in range(0, len(parents), size)]


def follow_beams(sequences: Iterable[Sequence], num_steps: int, outcomes: Iterable[int]) -> list[Sequence]:
    """What follows from a forward for those whose beams it was given. Returns who are done.

    sequences: who were given, those that have ended meanwhile among them. Whose last step is their search's to take
    stand before it, with their beams taken back.
    """
    done = []
    for sequence, outcome in zip(sequences, outcomes, strict=True):
        if sequence.beam is None:
            continue
        sequence.num_steps += num_steps
        sequence.length += num_steps
        if outcome == Outcome.GOES_ON:
            continue
        is_done = outcome == Outcome.IS_DONE
        take_back(sequence, is_done=is_done)
        if is_done:
            done.append(sequence)
        else:
            sequence.num_steps -= 1
            sequence.length -= 1
    return done
