"""What all live hypotheses ask of the runner in one forward."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from app.engine.sequence import Sequence
from app.runtime.beams import Beam
from app.runtime.interface import StepInput


def next_step(
    running: Iterable[Sequence], num_rows: int, *, vocab_size: int, max_steps: int, unheld_id: int = 0
) -> StepInput:
    """One step, or several where all sentences can go on without being looked at.

    num_rows: rows from the first on that are decoded. max_steps: that the forward may take.
    unheld_id: of rows that nobody holds.
    """
    ids, positions = [unheld_id] * num_rows, [0] * num_rows
    num_candidates, num_steps, num_others = 1, max_steps, 0
    wants_distributions = wants_alignment = False
    beams: list[Beam] = []
    for sequence in running:
        search = sequence.search
        if search.num_candidates > num_candidates:
            num_candidates = search.num_candidates
        if sequence.beam is not None:
            beams.append(sequence.beam)
            continue
        num_others += 1
        rows = sequence.rows
        if num_steps > 1:
            num_steps = min(num_steps, search.num_steps_ahead)
        if search.wants_distributions:
            wants_distributions = True
        if search.wants_alignment:
            wants_alignment = True
        if len(rows) == 1:  # the usual one, and a loop costs more than what is in it
            ids[rows[0]] = search.last_ids[0]
            positions[rows[0]] = sequence.length
        else:
            for row, token in zip(rows, search.last_ids, strict=True):
                ids[row] = token
                positions[row] = sequence.length
    return StepInput(
        np.array(ids, dtype=np.int32),
        np.array(positions, dtype=np.int32),
        min(num_candidates, vocab_size),
        1 if beams and num_others else num_steps,
        wants_distributions=wants_distributions,
        wants_alignment=wants_alignment,
        beams=beams,
    )
